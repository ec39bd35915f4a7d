package warmup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// PlanFile is a plan as JSON.
type PlanFile struct {
	Version int `json:"version"` // 1
	Plan
	Spread      string  `json:"spread"`       // of the day's cap over its hours: greedy or even
	HourSeconds float64 `json:"hour_seconds"` // length of an hour
}

// File gives the plan as ParsePlan reads it. Its name is not part of it.
func (p *Plan) File() PlanFile {
	f := PlanFile{Version: 1, Plan: *p, Spread: "greedy", HourSeconds: p.Hour.Seconds()}
	if p.SpreadEven {
		f.Spread = "even"
	}
	return f
}

// ParsePlan reads a plan as JSON and checks it. Fields that are absent have their defaults;
// unknown ones are errors.
func ParsePlan(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading plan: %w", err)
	}
	p := DefaultPlan()
	f := struct {
		PlanFile
		// The names of Pacing and Overflow in plans of older versions.
		Law  Pacing   `json:"law"`
		Mode Overflow `json:"mode"`
	}{PlanFile: p.File()}
	f.Version = 0
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("reading plan: %s", explainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading plan: there is more after the plan's closing brace")
	}
	f.Pacing = cmp.Or(f.Law, f.Pacing)
	if f.Mode == "divert" {
		f.Mode = Shared
	}
	f.Overflow = cmp.Or(f.Mode, f.Overflow)
	return f.plan()
}

// plan checks what was read and gives it as the relay uses it.
func (f *PlanFile) plan() (*Plan, error) {
	p := &f.Plan
	switch {
	case f.Version != 1:
		return nil, fmt.Errorf("plan version is %d: this program knows version 1", f.Version)
	case f.Spread != "greedy" && f.Spread != "even":
		return nil, fmt.Errorf("spread %q is not known: use greedy or even", f.Spread)
	case !(f.HourSeconds >= 1 && f.HourSeconds <= 3600):
		return nil, fmt.Errorf("hour_seconds is %v, outside 1 to 3600", f.HourSeconds)
	}
	p.StartStage = max(p.StartStage, 1)
	p.SpreadEven = f.Spread == "even"
	p.Hour = time.Duration(f.HourSeconds * float64(time.Second))
	return p, p.Check()
}

// explainJSON takes Go's own words out of what encoding/json says.
func explainJSON(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Sprintf("%s can't be %s",
			strings.NewReplacer("PlanFile.", "", "Plan.", "", "Caps.", "").Replace(kind.Field), kind.Value)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the file ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
