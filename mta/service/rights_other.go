//go:build !linux

package service

import (
	"errors"
	"log/slog"
	"os"
)

// AsUser refuses what only Linux can: to give up root and keep the right to low ports.
func AsUser(name string) error {
	if os.Geteuid() != 0 || name == "" || name == "root" {
		return nil
	}
	return errors.New("user: on this system the relay can't change its user: start it as that user")
}

// GuardMemory does nothing here.
func GuardMemory(*slog.Logger) {}

// unmapProgram does nothing here.
func unmapProgram() {}

// mountID knows no mounts here.
func mountID(string) (id uint64, ok bool) { return 0, false }
