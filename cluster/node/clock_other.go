//go:build !linux

package node

import (
	"errors"
	"time"
)

// Boot fails: only Linux has a clock that goes on while the machine is stopped, and a number of its boot.
func Boot() (clock func() time.Duration, boot uint64, err error) {
	return nil, 0, errors.New("a cluster needs Linux")
}
