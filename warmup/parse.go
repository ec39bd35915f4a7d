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

// planFile is a plan as JSON.
type planFile struct {
	Version       int                `json:"version"`
	Mode          string             `json:"mode"`
	Pacing        string             `json:"pacing"`
	Law           string             `json:"law,omitempty"` // Pacing's name before
	Burst         float64            `json:"burst"`
	BucketSeconds float64            `json:"bucket_seconds"`
	Peak          float64            `json:"peak"`
	SlidingHour   float64            `json:"sliding_hour_factor"`
	StartStage    int                `json:"start_stage"`
	Begin         *time.Time         `json:"begin,omitempty"`
	DayStarts     DayStart           `json:"day_starts,omitempty"`
	EaseOut       int                `json:"ease_out"`
	Shares        map[string]float64 `json:"shares,omitempty"`
	Growths       map[string]float64 `json:"growths,omitempty"`
	OwnStages     map[string]bool    `json:"own_stages,omitempty"`
	Weights       map[string]float64 `json:"weights,omitempty"`
	Stages        []Stage            `json:"stages"`
	Health        Health             `json:"health"`
	Shrinking     bool               `json:"shrinking"`
	Spread        string             `json:"spread"`
	Finish        bool               `json:"finish"`
	HourSeconds   float64            `json:"hour_seconds"`
}

// ParsePlan reads a plan as JSON and checks it. Fields that are absent have their defaults;
// unknown ones are errors.
func ParsePlan(r io.Reader) (*Plan, error) {
	p := DefaultPlan()
	f := planFile{
		Mode: "divert", Pacing: p.Pacing.String(), Burst: p.Burst, BucketSeconds: p.BucketSeconds, Peak: p.Peak, SlidingHour: p.SlidingHour,
		StartStage: p.StartStage, EaseOut: p.EaseOut, Health: p.Health, HourSeconds: 3600, Spread: "greedy",
	}
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading plan: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("reading plan: %s", explainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading plan: there is more after the plan's closing brace")
	}
	if err := f.into(&p); err != nil {
		return nil, err
	}
	return &p, p.Check()
}

func (f *planFile) into(p *Plan) error {
	if f.Version != 1 {
		return fmt.Errorf("plan version is %d: this program knows version 1", f.Version)
	}
	switch f.Mode {
	case "divert":
	case "hold":
		p.Overflow = Hold
	default:
		return fmt.Errorf("mode %q is not known: use divert or hold", f.Mode)
	}
	var err error
	if p.Pacing, err = ParsePacing(cmp.Or(f.Law, f.Pacing)); err != nil {
		return err
	}
	switch f.Spread {
	case "greedy":
	case "even":
		p.SpreadEven = true
	default:
		return fmt.Errorf("spread %q is not known: use greedy or even", f.Spread)
	}
	p.Burst, p.BucketSeconds, p.Peak, p.SlidingHour = f.Burst, f.BucketSeconds, f.Peak, f.SlidingHour
	p.StartStage = max(f.StartStage, 1)
	p.Shares, p.Growths, p.OwnStages, p.Weights, p.Stages, p.Health = f.Shares, f.Growths, f.OwnStages, f.Weights, f.Stages, f.Health
	p.Shrinking, p.Finish, p.EaseOut = f.Shrinking, f.Finish, f.EaseOut
	if f.Begin != nil {
		p.Begin = *f.Begin
	}
	if f.DayStarts != "" {
		if p.DayStarts, err = ParseDayStart(string(f.DayStarts)); err != nil {
			return fmt.Errorf("day_starts: %w", err)
		}
	}
	if !(f.HourSeconds >= 1 && f.HourSeconds <= 3600) {
		return fmt.Errorf("hour_seconds is %v, outside 1 to 3600", f.HourSeconds)
	}
	p.Hour = time.Duration(f.HourSeconds * float64(time.Second))
	return nil
}

// MarshalJSON writes the plan as ParsePlan reads it, every field included. Its name is not part of
// it.
func (p *Plan) MarshalJSON() ([]byte, error) {
	f := planFile{
		Version: 1, Mode: p.Overflow.String(), Pacing: p.Pacing.String(),
		Burst: p.Burst, BucketSeconds: p.BucketSeconds, Peak: p.Peak, SlidingHour: p.SlidingHour,
		StartStage: p.StartStage, DayStarts: p.DayStarts, EaseOut: p.EaseOut, Shares: p.Shares, Growths: p.Growths, OwnStages: p.OwnStages, Weights: p.Weights, Stages: p.Stages, Health: p.Health,
		Shrinking: p.Shrinking, Spread: "greedy", Finish: p.Finish, HourSeconds: p.Hour.Seconds(),
	}
	if p.SpreadEven {
		f.Spread = "even"
	}
	if !p.Begin.IsZero() {
		f.Begin = &p.Begin
	}
	return json.Marshal(f)
}

// explainJSON takes Go's own words out of what encoding/json says.
func explainJSON(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Sprintf("%s can't be %s", strings.ReplaceAll(kind.Field, "Caps.", ""), kind.Value)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the file ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
