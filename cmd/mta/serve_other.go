//go:build !linux

package main

import (
	"errors"
	"log/slog"
	"os"
)

// asUser refuses what only Linux can: to give up root and keep the right to low ports.
func asUser(name string) error {
	if os.Geteuid() != 0 || name == "" || name == "root" {
		return nil
	}
	return errors.New("user: on this system the relay can't change its user: start it as that user")
}

// guardMemory does nothing here.
func guardMemory(*slog.Logger) {}

// mountID knows no mounts here.
func mountID(string) (id uint64, ok bool) { return 0, false }
