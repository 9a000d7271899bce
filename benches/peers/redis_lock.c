/* The least program that runs a command under SET NX PX and compare-and-delete: PORT NAME COMMAND... */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static char ask(int redis, const char *request) {
    char reply[64] = "";
    if (write(redis, request, strlen(request)) < 0 || read(redis, reply, sizeof reply - 1) < 0) return 0;
    return reply[0];
}

int main(int count, char **words) {
    int redis = socket(AF_INET, SOCK_STREAM, 0), on = 1, status = 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1])), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    char request[512], value[16];
    pid_t child;
    if (count < 4 || connect(redis, (struct sockaddr *)&address, sizeof address)) return 69;
    setsockopt(redis, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    snprintf(value, sizeof value, "%08d", getpid());
    snprintf(request, sizeof request, "SET %s %s NX PX 30000\r\n", words[2], value);
    if (ask(redis, request) != '+') return 75;
    if (posix_spawnp(&child, words[3], 0, 0, words + 3, environ)) return 127;
    waitpid(child, &status, 0);
    snprintf(request, sizeof request,
             "EVAL \"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0\" 1 %s %s\r\n",
             words[2], value);
    if (ask(redis, request) != ':') return 70;
    return WEXITSTATUS(status);
}
