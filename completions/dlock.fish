# Completions of dlock for fish.

function __dlock_candidates
    set -l words (commandline -opc) (commandline -ct)
    set -l answer (dlock __complete $words[2..-1] 2>/dev/null)
    set -l kind $answer[1]
    switch "$kind"
        case 'command *'
            set -l first (math (string replace 'command ' '' -- $kind) + 1)
            set -l last (count $words)
            set -l before
            if test $first -lt $last
                set before (string escape -- $words[$first..(math $last - 1)])
            end
            complete -C (string join ' ' -- $before $words[-1])
        case files
            __fish_complete_path (string replace -r -- '^--[^=]*=' '' $words[-1])
        case directories
            __fish_complete_directories (string replace -r -- '^--[^=]*=' '' $words[-1])
        case words
            string join \n -- $answer[2..-1]
    end
end

complete -c dlock -f -a '(__dlock_candidates)'
