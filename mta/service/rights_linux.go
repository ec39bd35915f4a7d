package service

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AsUser goes on as the configured user when the relay was started by root: the program begins anew, as
// that user, with the one capability that ports below 1024 take. It comes back only when there is nothing
// to do, or with an error. Everything is opened afterwards, so that what the user can't read or write
// shows at the start, and not at a reload.
func AsUser(name string) error {
	if os.Geteuid() != 0 || name == "" || name == "root" {
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return &noUser{name, err}
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	ids, err3 := u.GroupIds()
	if err := errors.Join(err1, err2, err3); err != nil {
		return fmt.Errorf("user %s: %w", name, err)
	}
	groups := make([]uint32, len(ids))
	for i, id := range ids {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return fmt.Errorf("user %s: %w", name, err)
		}
		groups[i] = uint32(n)
	}
	// What follows is about this thread alone. When it executes the program the others end, and the
	// process is what this thread is.
	runtime.LockOSThread()
	if err := becomeUser(uid, gid, groups); err != nil {
		return fmt.Errorf("becoming user %s: %w", name, err)
	}
	return fmt.Errorf("starting anew as user %s: %w", name, syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// becomeUser gives up all rights but that to bind ports below 1024.
func becomeUser(uid, gid int, groups []uint32) error {
	call := func(what string, number uintptr, args ...uintptr) error {
		var a [5]uintptr
		copy(a[:], args)
		if _, _, errno := syscall.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], 0); errno != 0 {
			return fmt.Errorf("%s: %w", what, errno)
		}
		return nil
	}
	first := uintptr(0)
	if len(groups) > 0 {
		first = uintptr(unsafe.Pointer(&groups[0]))
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	const bind = 1 << unix.CAP_NET_BIND_SERVICE
	data := [2]unix.CapUserData{{Effective: bind, Permitted: bind, Inheritable: bind}}
	for _, step := range []func() error{
		func() error { return call("keeping capabilities", syscall.SYS_PRCTL, unix.PR_SET_KEEPCAPS, 1) },
		func() error { return call("groups", syscall.SYS_SETGROUPS, uintptr(len(groups)), first) },
		func() error { return call("group", syscall.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)) },
		func() error { return call("user", syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)) },
		func() error { return unix.Capset(&header, &data[0]) },
		func() error {
			return call("passing the capability on", syscall.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE,
				unix.CAP_NET_BIND_SERVICE)
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// GuardMemory keeps the memory of the process, with its keys and passwords, out of core dumps and from
// other processes of its user.
func GuardMemory(log *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		log.Warn("core dumps can't be switched off: one would have keys and passwords in it", "error", err)
	}
}

// mountID identifies the mount that a path is in. Linux has it from 5.8 on.
func mountID(path string) (id uint64, ok bool) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &stat)
	return stat.Mnt_id, err == nil && stat.Mask&unix.STATX_MNT_ID != 0
}

// noUser is the error of a user that the system doesn't have.
type noUser struct {
	name string
	err  error
}

func (e *noUser) Error() string { return "user: " + e.err.Error() }

func (e *noUser) Unwrap() error { return e.err }

// Hint returns what to do.
func (e *noUser) Hint() string { return "make the user, as with: useradd --system " + e.name }
