package wiring

import (
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
)

// Accounting makes the limits of the accounting log.
func Accounting(cfg *config.Config) accounting.Limits {
	a := cfg.Accounting
	return accounting.Limits{
		RotateSize:  int64(a.RotateSize),
		RotateEvery: a.RotateEvery,
		Keep:        a.Keep,
		KeepSize:    int64(a.KeepSize),
		Compress:    a.Compress == "zstd",
	}
}
