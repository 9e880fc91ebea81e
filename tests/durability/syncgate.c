/* A disk that waits or refuses when it is told to.
 *
 * Preloaded into a host, it stands before fsync and fdatasync. In the folder that $SYNCGATE names
 *   gate     makes every sync create `blocked` and wait until `gate` is gone;
 *   fail     makes every sync fail with EIO.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *path_of(char *path, const char *name) {
    const char *folder = getenv("SYNCGATE");
    snprintf(path, PATH_MAX, "%s/%s", folder ? folder : "/nonexistent", name);
    return path;
}

static int told(const char *name) {
    char path[PATH_MAX];
    return access(path_of(path, name), F_OK) == 0;
}

static int sync_when_allowed(const char *how, int file) {
    char path[PATH_MAX];
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, how);
    if (told("gate")) {
        close(open(path_of(path, "blocked"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        while (told("gate"))
            usleep(1000);
    }
    if (told("fail")) {
        errno = EIO;
        return -1;
    }
    return real(file);
}

int fsync(int file) { return sync_when_allowed("fsync", file); }

int fdatasync(int file) { return sync_when_allowed("fdatasync", file); }
