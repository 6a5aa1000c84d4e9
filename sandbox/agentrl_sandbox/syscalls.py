"""System calls that a sandbox allows, with their numbers; others fail as if the kernel did not know them.

Left out on purpose, because they break isolation or reach resources that the whole machine shares:
- mounts, namespaces, privileges: mount, fsopen, open_tree, unshare, setns, chroot, pivot_root, open_by_handle_at;
- other processes: ptrace, process_vm_readv, process_madvise, kcmp, pidfd_getfd, pidfd_send_signal;
- the kernel's own machinery: bpf, perf_event_open, io_uring_setup, userfaultfd, keyctl, kexec_load, init_module;
- limited per machine or user, not per sandbox: io_setup, inotify_init, fanotify_init, mq_open, shmget, msgget;
- locking memory or files of others: mlock, memfd_secret, flock, vmsplice, mbind, readahead.
"""

from __future__ import annotations

# name, number on x86_64, number on aarch64 ("-": none)
_TABLE = """
# Files, folders and I/O
read 0 63, write 1 64, open 2 -, openat 257 56, openat2 437 437, creat 85 -, close 3 57, close_range 436 436,
lseek 8 62, pread64 17 67, pwrite64 18 68, readv 19 65, writev 20 66, preadv 295 69, pwritev 296 70,
preadv2 327 286, pwritev2 328 287, stat 4 -, fstat 5 80, lstat 6 -, newfstatat 262 79, statx 332 291, access 21 -,
faccessat 269 48, faccessat2 439 439, truncate 76 45, ftruncate 77 46, fallocate 285 47, copy_file_range 326 285,
sendfile 40 71, splice 275 76, tee 276 77, dup 32 23, dup2 33 -, dup3 292 24, pipe 22 -, pipe2 293 59,
getdents 78 -, getdents64 217 61, getcwd 79 17, chdir 80 49, fchdir 81 50, rename 82 -, renameat 264 38,
renameat2 316 276, mkdir 83 -, mkdirat 258 34, rmdir 84 -, link 86 -, linkat 265 37, unlink 87 -, unlinkat 263 35,
symlink 88 -, symlinkat 266 36, readlink 89 -, readlinkat 267 78, chmod 90 -, fchmod 91 52, fchmodat 268 53,
fchmodat2 452 452, chown 92 -, fchown 93 55, lchown 94 -, fchownat 260 54, umask 95 166, utime 132 -, utimes 235 -,
futimesat 261 -, utimensat 280 88, mknod 133 -, mknodat 259 33, statfs 137 43, fstatfs 138 44, setxattr 188 5,
lsetxattr 189 6, fsetxattr 190 7, getxattr 191 8, lgetxattr 192 9, fgetxattr 193 10, listxattr 194 11,
llistxattr 195 12, flistxattr 196 13, removexattr 197 14, lremovexattr 198 15, fremovexattr 199 16,
# Polling
poll 7 -, ppoll 271 73, select 23 -, pselect6 270 72, epoll_create 213 -, epoll_create1 291 20, epoll_ctl 233 21,
epoll_wait 232 -, epoll_pwait 281 22, epoll_pwait2 441 441, eventfd 284 -, eventfd2 290 19, signalfd 282 -,
signalfd4 289 74, timerfd_create 283 85, timerfd_settime 286 86, timerfd_gettime 287 87,
# Memory
brk 12 214, munmap 11 215, mprotect 10 226, mremap 25 216, madvise 28 233, pkey_alloc 330 289, pkey_free 331 290,
pkey_mprotect 329 288, mseal 462 462, map_shadow_stack 453 453,
# Processes and threads
fork 57 -, vfork 58 -, execve 59 221, execveat 322 281, exit 60 93, exit_group 231 94, wait4 61 260, waitid 247 95,
getpid 39 172, getppid 110 173, gettid 186 178, set_tid_address 218 96, set_robust_list 273 99,
get_robust_list 274 100, futex 202 98, futex_wake 454 454, futex_wait 455 455, futex_requeue 456 456,
futex_waitv 449 449, rseq 334 293, arch_prctl 158 -, getpgid 121 155, getpgrp 111 -, setpgid 109 154,
getsid 124 156, setsid 112 157, restart_syscall 219 128,
# Signals
rt_sigaction 13 134, rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137,
rt_sigsuspend 130 133, sigaltstack 131 132, pause 34 -, alarm 37 -, getitimer 36 102, setitimer 38 103,
timer_create 222 107, timer_settime 223 110, timer_gettime 224 108, timer_getoverrun 225 109, timer_delete 226 111,
# Time, limits, scheduling and machine information
time 201 -, gettimeofday 96 169, clock_gettime 228 113, clock_getres 229 114, nanosleep 35 101,
clock_nanosleep 230 115, times 100 153, getrusage 98 165, getrlimit 97 163, getpriority 140 141,
sched_yield 24 124, sched_getaffinity 204 123, sched_getparam 143 121, sched_getscheduler 145 120,
sched_getattr 315 275, sched_get_priority_max 146 125, sched_get_priority_min 147 126,
sched_rr_get_interval 148 127, getcpu 309 168, uname 63 160, sysinfo 99 179, getrandom 318 278,
# Users, groups and privileges, which can only be dropped
getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177, getresuid 118 148, getresgid 120 150,
getgroups 115 158, setuid 105 146, setgid 106 144, setreuid 113 145, setregid 114 143, setresuid 117 147,
setresgid 119 149, setgroups 116 159, setfsuid 122 151, setfsgid 123 152, capget 125 90, capset 126 91,
# Sockets
connect 42 203, accept 43 202, accept4 288 242, bind 49 200, listen 50 201, getsockname 51 204, getpeername 52 205,
sendto 44 206, recvfrom 45 207, sendmsg 46 211, recvmsg 47 212, sendmmsg 307 269, recvmmsg 299 243,
shutdown 48 210, setsockopt 54 208, getsockopt 55 209,
# Allowed depending on their arguments: see RULES
socket 41 198, socketpair 53 199, clone 56 220, mmap 9 222, memfd_create 319 279, fcntl 72 25, ioctl 16 29,
prctl 157 167, personality 135 92, prlimit64 302 261, setrlimit 160 164, setpriority 141 140,
sched_setaffinity 203 122, sched_setparam 142 118, sched_setscheduler 144 119, sched_setattr 314 274, kill 62 129,
tkill 200 130, tgkill 234 131, rt_sigqueueinfo 129 138, rt_tgsigqueueinfo 297 240, pidfd_open 434 434,
# Reported as done without effect: see ANSWERED
sync 162 81, syncfs 306 267, fsync 74 82, fdatasync 75 83, msync 26 227, sync_file_range 277 84, fadvise64 221 223,
"""


def numbers(column: int) -> dict[str, int]:
    """Return the numbers by name on x86_64 (column 1) or aarch64 (column 2)."""
    lines = (line for line in _TABLE.splitlines() if not line.startswith("#"))
    entries = [entry.split() for line in lines for entry in line.split(",") if entry.strip()]
    return {entry[0]: int(entry[column]) for entry in entries if entry[column] != "-"}
