package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

// TestAnAdoptionFails when something is left, for people and for programs, and what is left is named.
func TestAnAdoptionFails(t *testing.T) {
	ended := api.Adoption{Ended: time.Unix(1, 0)}
	left := api.Adoption{Stays: []string{"message x: no node takes it"}}
	for _, asJSON := range []string{"--json=false", "--json"} {
		for i, tt := range []struct {
			done  api.Adopted
			fails bool
		}{
			{api.Adopted{Adoption: ended}, false},
			{api.Adopted{Adoption: left}, true},
			{api.Adopted{Adoption: api.Adoption{Running: true}}, false}, // --no-wait
			{api.Adopted{Effect: api.Effect{DryRun: true}}, false},
			{api.Adopted{Effect: api.Effect{DryRun: true}, Adoption: api.Adoption{Failed: "it is damaged"}}, true},
		} {
			var out, notes bytes.Buffer
			c := &cli{out: &out, err: &notes}
			cmd := prints(c, &cobra.Command{SilenceErrors: true, SilenceUsage: true},
				func(context.Context, []string) (adoption, error) { return adoption{tt.done}, nil },
				func(done adoption) error { return c.adopted(&done.Adopted) })
			cmd.SetArgs([]string{asJSON})
			err := cmd.Execute()
			if fails := errors.Is(err, exitError(exitFailed)); fails != tt.fails || err != nil && !fails {
				t.Errorf("%s, %d: %v", asJSON, i, err)
			}
			if all := out.String() + notes.String(); i == 1 && !strings.Contains(all, "message x: no node takes it") {
				t.Errorf("%s: it shows %s", asJSON, all)
			}
		}
	}
}
