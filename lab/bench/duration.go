package bench

import (
	"fmt"
	"time"
)

// Duration is a time.Duration that is written in JSON as Go writes it: "50ms".
type Duration time.Duration

// MarshalText gives the text form.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads the text form.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// String gives the text form.
func (d Duration) String() string { return time.Duration(d).String() }

// Set reads the text form; with Type it makes a Duration the value of a flag.
func (d *Duration) Set(text string) error {
	if err := d.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is not a valid duration (want one such as 50ms)", text)
	}
	return nil
}

// Type names the kind of a flag.
func (d *Duration) Type() string { return "duration" }
