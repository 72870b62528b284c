/* Moves the time of day of the process that it is loaded into (LD_PRELOAD): by as many nanoseconds as the file that STAGE_CLOCK
 * names holds as a 64-bit number, at each moment. Clocks that count from a start, such as the monotonic one, stay as they are. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000

static const int64_t *off;

__attribute__((constructor)) static void find_file(void) {
    const char *path = getenv("STAGE_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *shared = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *off, PROT_READ, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) {
        static const char why[] = "clock: the file that STAGE_CLOCK names cannot be read\n";
        /* Why the end: a clock that stays right would let tests pass that prove nothing. */
        _exit(write(2, why, sizeof why - 1) < 0 ? 126 : 127);
    }
    close(file);
    off = shared;
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int failed = (int)syscall(SYS_clock_gettime, id, at);
    if (failed || !off || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) {
        return failed;
    }
    int64_t nanos = __atomic_load_n(off, __ATOMIC_RELAXED);
    int64_t rest = at->tv_nsec + nanos % SECOND;
    at->tv_sec += nanos / SECOND + (rest >= SECOND) - (rest < 0);
    at->tv_nsec = rest + (rest < 0) * (int64_t)SECOND - (rest >= SECOND) * (int64_t)SECOND;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int failed = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return failed;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return at ? (*at = now.tv_sec) : now.tv_sec;
}
