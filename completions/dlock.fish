# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dlock_global_optspecs
    string join \n h/help V/version
end

function __fish_dlock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dlock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dlock_using_subcommand
    set -l cmd (__fish_dlock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dlock -n "__fish_dlock_needs_command" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_needs_command" -s V -l version -d 'Print version'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "run" -d 'Run a command under a lock'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "elect" -d 'Run a command while elected the leader'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "proclaim" -d 'Change the value of the leader, from inside its command'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "leader" -d 'Show the leader of an election and what it proclaims'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "status" -d 'Show who holds and waits for locks, in order'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "list" -d 'List the locks that have holders or waiters'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "watch" -d 'Show a lock\'s queue after each change, until interrupted'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "break" -d 'End a hold or a wait of somebody else'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "doctor" -d 'Explain the configuration and look for what can cost a lock'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "completions" -d 'Print the completions for a shell'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "man" -d 'Print a manual page'
complete -c dlock -n "__fish_dlock_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l name -d 'The lock. Several names are acquired together, all or none' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l slots -d 'Hold together with at most N-1 others that also say N' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -s w -l wait -d 'Give up after DURATION [default: wait indefinitely]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -s E -l busy-exit-code -d 'The exit status when the lock was not acquired, 0 to 255 [default: 75]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l ttl -d 'The length of the lease, at least 1s [default: 30s] [env: DLOCK_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l grace -d 'The time between SIGTERM and SIGKILL when the command is ended [default: 5s] [env: DLOCK_GRACE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l signal -d 'Stop the command with SIGNAL first, by name or number [default: TERM]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l max-run -d 'Stop the command after DURATION under the lock [default: never]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l hold-at-least -d 'Keep the lock for DURATION at least, also when the command ends sooner [default: 0]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l once-per -d 'Skip (exit 0) if a run that acquired the lock within the last DURATION succeeded [default: off]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -s c -l command -d 'Run STRING with /bin/sh instead of a command and its arguments' -r -f -a "(__fish_complete_command)"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l label -d 'A text that others see in status' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l report -d 'Write a JSON object on how it went to FILE' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l metrics-file -d 'Write the same to FILE as Prometheus text, for the node exporter\'s textfile collector' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand run" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand run" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand run" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand run" -s s -l shared -d 'Hold together with other shared holders'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s x -l exclusive -d 'Hold alone, which is the default'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s n -l try -d 'Do not wait: give up at once if the lock is not free'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l supersede -d 'Take the place of older waiters that also said so; they exit as busy'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l replace -d 'As --supersede, and have a holder that also said so stop its command; it exits 76'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l whole-tree -d 'Hold until every descendant of the command has ended, not just the command'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l no-nest -d 'Ask for a second claim even under an own hold of this lock'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l notify-ready -d 'Tell systemd READY=1 when the command starts, not when the command says so'
complete -c dlock -n "__fish_dlock_using_subcommand run" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand run" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l value -d 'What others see of the leader, as dlock leader prints it [default: the host\'s name]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s w -l wait -d 'Give up after DURATION [default: wait indefinitely]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s E -l busy-exit-code -d 'The exit status when the lock was not acquired, 0 to 255 [default: 75]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l ttl -d 'The length of the lease, at least 1s [default: 30s] [env: DLOCK_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l grace -d 'The time between SIGTERM and SIGKILL when the command is ended [default: 5s] [env: DLOCK_GRACE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l signal -d 'Stop the command with SIGNAL first, by name or number [default: TERM]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l max-run -d 'Stop the command after DURATION under the lock [default: never]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l hold-at-least -d 'Keep the lock for DURATION at least, also when the command ends sooner [default: 0]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l once-per -d 'Skip (exit 0) if a run that acquired the lock within the last DURATION succeeded [default: off]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s c -l command -d 'Run STRING with /bin/sh instead of a command and its arguments' -r -f -a "(__fish_complete_command)"
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l report -d 'Write a JSON object on how it went to FILE' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l metrics-file -d 'Write the same to FILE as Prometheus text, for the node exporter\'s textfile collector' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l slots -d 'Hold together with at most N-1 others that also say N' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l label -d 'A text that others see in status' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l name -d 'The election; it is the lock of that name' -r
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l forever -d 'Stand again, at the end of the queue, when a term has ended; until a signal ends dlock'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s n -l try -d 'Do not wait: give up at once if the lock is not free'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l supersede -d 'Take the place of older waiters that also said so; they exit as busy'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l whole-tree -d 'Hold until every descendant of the command has ended, not just the command'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l no-nest -d 'Ask for a second claim even under an own hold of this lock'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l notify-ready -d 'Tell systemd READY=1 when the command starts, not when the command says so'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s s -l shared -d 'Hold together with other shared holders'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s x -l exclusive -d 'Hold alone, which is the default'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -l replace -d 'As --supersede, and have a holder that also said so stop its command; it exits 76'
complete -c dlock -n "__fish_dlock_using_subcommand elect" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand proclaim" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l name -d 'The election, as elect takes it; the same as NAME' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l follow -d 'Go on, and print a line for each change of the leader or its value, until interrupted'
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l json -d 'Print the leader\'s whole entry as a JSON object, null if nobody leads'
complete -c dlock -n "__fish_dlock_using_subcommand leader" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand leader" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand leader" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand leader" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand status" -l name -d 'The lock, as run takes it; the same as NAME' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand status" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand status" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand status" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand status" -l json -d 'Print a JSON object, one a line for each name'
complete -c dlock -n "__fish_dlock_using_subcommand status" -l wide -d 'Show also token, time to live and the whole claim, and cut nothing'
complete -c dlock -n "__fish_dlock_using_subcommand status" -l exit-code -d 'Exit 75 if one of the locks is held or waited for, 0 if all are free'
complete -c dlock -n "__fish_dlock_using_subcommand status" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand status" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand status" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand status" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand list" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand list" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand list" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand list" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand list" -l json -d 'Print a JSON object'
complete -c dlock -n "__fish_dlock_using_subcommand list" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand list" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand list" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand list" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l name -d 'The lock, as run takes it; the same as NAME' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l json -d 'Print a JSON object after each change, one a line'
complete -c dlock -n "__fish_dlock_using_subcommand watch" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand watch" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand watch" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand watch" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand break" -l name -d 'The lock, as run takes it; the same as NAME' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l claim -d 'The claim to end, as status shows it; its first digits are enough, at least eight [default: the only one there is]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand break" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand break" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand break" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand break" -l all -d 'End every claim on the lock, waiters first'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s y -l yes -d 'Do not ask'
complete -c dlock -n "__fish_dlock_using_subcommand break" -l force -d 'Remove the entry at once instead of asking its holder to end; two commands may overlap. Entries of other programs need it'
complete -c dlock -n "__fish_dlock_using_subcommand break" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand break" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l backend -d 'The kind of lock service: file, etcd, redis, zk, mysql or postgres [default: what the endpoint says, else file] [env: DLOCK_BACKEND]' -r
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l endpoint -d 'Where the service is, several times or as a comma list; for file the lock directory [default: the service\'s usual port on this host; /var/lib/dlock for root, else /var/tmp/dlock-UID] [env: DLOCK_ENDPOINT]' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l prefix -d 'What stands before each name at the service, also empty [default: the backend\'s own] [env: DLOCK_PREFIX]' -r
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l user -d 'The user to log in as [env: DLOCK_USER]' -r
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l password-file -d 'A file with the password in its first line; or the password in the environment [env: DLOCK_PASSWORD_FILE, DLOCK_PASSWORD]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l cacert -d 'The PEM file of the authorities whose servers are believed [default: the system\'s] [env: DLOCK_CACERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l cert -d 'The PEM file of the certificate to show to the server [env: DLOCK_CERT]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l key -d 'The PEM file of that certificate\'s key [env: DLOCK_KEY]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l tls-server-name -d 'The name that the server\'s certificate must have [default: that of the address] [env: DLOCK_TLS_SERVER_NAME]' -r
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l zk-layout -d 'How ZooKeeper nodes are named: curator or kazoo [default: curator] [env: DLOCK_ZK_LAYOUT]' -r
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l max-ttl -d 'The longest ttl on several independent Redis servers, each of which has no say for so long after its restart; the same for all users of a lock [default: 60s] [env: DLOCK_MAX_TTL]' -r
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l config -d 'The configuration file to use instead of the user\'s own [default: $XDG_CONFIG_HOME/dlock/config.toml] [env: DLOCK_CONFIG]' -r -F
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l profile -d 'The profile of the configuration files to use [env: DLOCK_PROFILE]' -r
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l log-format -d 'How messages are written: human or json, one object a line [default: human] [env: DLOCK_LOG_FORMAT]' -r -f -a "human\t''
json\t''"
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l json -d 'Print a JSON object'
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l schema -d 'Print the statements that make a database\'s tables, and connect to nothing'
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -l allow-network-fs -d 'Use a lock directory on a network file system, where locks may not hold between hosts'
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -s q -l quiet -d 'Say nothing of waiting and busy locks; other failures are still told'
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -s v -l verbose -d 'Say how it goes'
complete -c dlock -n "__fish_dlock_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand completions" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand man" -l dir -d 'Write all pages into this directory instead' -r -f -a "(__fish_complete_directories)"
complete -c dlock -n "__fish_dlock_using_subcommand man" -s h -l help -d 'Print help'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "run" -d 'Run a command under a lock'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "elect" -d 'Run a command while elected the leader'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "proclaim" -d 'Change the value of the leader, from inside its command'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "leader" -d 'Show the leader of an election and what it proclaims'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "status" -d 'Show who holds and waits for locks, in order'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "list" -d 'List the locks that have holders or waiters'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "watch" -d 'Show a lock\'s queue after each change, until interrupted'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "break" -d 'End a hold or a wait of somebody else'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "doctor" -d 'Explain the configuration and look for what can cost a lock'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "completions" -d 'Print the completions for a shell'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "man" -d 'Print a manual page'
complete -c dlock -n "__fish_dlock_using_subcommand help; and not __fish_seen_subcommand_from run elect proclaim leader status list watch break doctor completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
