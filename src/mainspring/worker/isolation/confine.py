"""Applies a sandbox's limits to itself and then becomes the program.

Started as a script with an empty environment, `confine.py DESCRIPTOR`: a worker with threads must not run its own code
between fork and exec, and a variable of the job, such as LD_PRELOAD, must not run code before the limits hold. The
descriptor is a file with the settings, the program and its environment. It joins cgroups, hides them, lowers its
rlimits and gives up new privileges. Uses only the standard library, for a quick start.
"""

import ctypes
import json
import os
import resource
import signal
import sys

PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 38, 24
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUSER = 0x20000, 0x2000000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 1, 32, 4096, 16384, 1 << 19
MOUNT_FLAGS = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
CGROUPS = "/sys/fs/cgroup"
# dac_read_search, sys_module, sys_rawio, sys_ptrace, sys_admin, mknod, mac_override, mac_admin, perfmon, bpf,
# checkpoint_restore: with one of these, root could undo the mounts or enter the namespace of another process.
CAPABILITIES = (2, 16, 17, 19, 21, 27, 32, 33, 38, 39, 40)
CPU_GRACE_S = 2

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        settings = json.load(file)
    argv, env = settings["argv"], settings["env"]
    try:
        for procs_file in settings["procs_files"]:
            with open(procs_file, "w") as file:
                file.write("0")
        if settings["protects_cgroups"]:
            protect_cgroups()
        for name, value in settings["rlimits"].items():
            which = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(which)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            # Over the soft CPU limit the kernel sends SIGXCPU, which shows the cause; over the hard one SIGKILL.
            resource.setrlimit(which, (value, value + CPU_GRACE_S if name == "CPU" else value))
        check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    except OSError as error:
        sys.exit(f"mainspring: cannot set up the sandbox: {error}")
    for number in (signal.SIGXFSZ, signal.SIGPIPE):  # Python ignores these, and the program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        if settings["cwd"] is not None:
            os.chdir(settings["cwd"])
        if settings["options"]:  # of bwrap, which sets the environment inside the sandbox
            argv, env = [*argv[:1], "--args", str(as_file(settings["options"])), *argv[1:]], {}
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        print(f"mainspring: {error.filename or argv[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def protect_cgroups() -> None:
    """Make the cgroup file systems read-only for this process and its children, so that they cannot leave.

    Other users than root need a user namespace for that, in which files of others appear without an owner.
    """
    uid, gid = os.geteuid(), os.getegid()
    namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | (CLONE_NEWUSER if uid != 0 else 0)
    check(libc.unshare(namespaces), "unshare")
    if uid != 0:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount(None, "/", MS_REC | MS_SLAVE)
    for path, options in cgroup_mounts():
        flags = sum(MOUNT_FLAGS.get(option, 0) for option in options.split(","))
        mount(None, path, MS_REMOUNT | MS_BIND | MS_RDONLY | flags)
    for capability in CAPABILITIES if uid == 0 else ():
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails only for those that this kernel does not know


def cgroup_mounts() -> list[tuple[str, str]]:
    """Return the mounts that show cgroups, wherever they are, with their options."""
    found = []
    with open("/proc/self/mountinfo") as file:
        for line in file:
            words = line.split()
            path = words[4].encode().decode("unicode_escape")
            if words[words.index("-") + 1] in ("cgroup", "cgroup2") or path == CGROUPS:
                found.append((path, words[5]))
    return found


def mount(source: str | None, target: str, flags: int) -> None:
    check(libc.mount(source, target.encode(), None, ctypes.c_ulong(flags), None), f"mount {target}")


def check(returned: int, what: str) -> None:
    if returned != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


def as_file(words: list[str]) -> int:
    """Return a descriptor of a file with these words: others can read command lines."""
    descriptor = os.memfd_create("options", 0)
    os.write(descriptor, b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


if __name__ == "__main__":
    main()
