package config

import "time"

// Size is a number of octets, written as "50MiB".
type Size int64

// ByteRate is octets a second, written as "1KiB/s". Zero, "none", is no limit.
type ByteRate int64

// Rate is so many events in a time, written as "100/s", "50/min", "10000/d". The zero Rate,
// "none", is no limit.
type Rate struct {
	Count int
	Per   time.Duration
}

// Mode is the permissions of a file, written in octal as "0660".
type Mode uint32

// Secret is text that must not be printed. Its String is a mask; convert it to string where it
// is used.
type Secret string

// Pattern is a domain or host name, "*.name" for all names below it, or "*" for all names.
type Pattern string

// Smarthost is a host to relay through, written as "smtp://host:port", or "smtps://host:port"
// for TLS from the first byte (RFC 8314).
type Smarthost struct {
	Host     string // name in A-label form, or IP address
	Port     uint16
	Implicit bool // TLS from the first byte
}
