package demo

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// watchFor ends the context when a line with text has been written.
type watchFor struct {
	strings.Builder
	text string
	stop context.CancelFunc
}

func (w *watchFor) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.stop()
	}
	return w.Builder.Write(p)
}

func TestRunAccountsForEveryMessage(t *testing.T) {
	var out strings.Builder
	err := Run(t.Context(), Options{Out: &out, Messages: 300, Over: time.Second, Seed: 1, Limit: time.Minute})
	if err != nil {
		t.Errorf("Run: %v", err)
	}
	for _, want := range []string{"300 messages to", "Every message is accounted for.", "submitted 300 of 300"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the demo doesn't say %q:\n%s", want, &out)
		}
	}
	if strings.Contains(out.String(), " 0 of them by HTTP") {
		t.Errorf("nothing was sent by HTTP:\n%s", &out)
	}
	if strings.Contains(out.String(), "WRONG") {
		t.Errorf("the demo found faults:\n%s", &out)
	}
}

func TestInterruptedRunAccountsForWhatThereIs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &watchFor{text: "submitted", stop: cancel}
	dir := t.TempDir()
	if err := Run(ctx, Options{Out: out, Messages: 5000, Over: 10 * time.Second, Dir: dir}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if !strings.Contains(out.String(), "Interrupted") || !strings.Contains(out.String(), "Every message is accounted for.") {
		t.Errorf("the demo says:\n%s", out)
	}
	if _, err := os.Stat(dir + "/relay.log"); err != nil {
		t.Errorf("the folder that was asked for is gone: %v", err)
	}
}

func TestKeptRunGoesOnUntilItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := &watchFor{text: "The relay goes on", stop: cancel}
	if err := Run(ctx, Options{Out: out, Messages: 100, Over: 100 * time.Millisecond, Seed: 1, Keep: true}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if !strings.Contains(out.String(), "mta queue list --socket") {
		t.Errorf("the demo says:\n%s", out)
	}
}

// A demo whose time is up accounts for the mail that still waits, and reports why it ended.
func TestRunThatTakesTooLongEndsInASentence(t *testing.T) {
	var out strings.Builder
	if err := Run(t.Context(), Options{Out: &out, Messages: 100, Over: 100 * time.Millisecond, Seed: 1, Limit: 1}); err != nil {
		t.Errorf("Run: %v", err)
	}
	if !strings.Contains(out.String(), "This machine is busy: ") || !strings.Contains(out.String(), "Every message is accounted for.") {
		t.Errorf("the demo says:\n%s", &out)
	}
}
