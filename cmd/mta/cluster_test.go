package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/owner"
	"example.org/mta/internal/bubble"
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

// TestARowOfTheStatus is one line, whatever somebody has written into the database.
func TestARowOfTheStatus(t *testing.T) {
	var out bytes.Buffer
	c := &cli{out: &out, err: &out}
	_ = c.clusterStatus(api.Cluster{On: true, Trouble: []string{"node 2 at x\nshards 64"},
		Members: []api.ClusterMember{{Node: 2, Address: "x\n   3  10.0.0.3:2571", Version: "1\n   4  10.0.0.4:2571"}}})
	if text := out.String(); strings.Contains(text, "\n   3") || strings.Contains(text, "\n   4") || strings.Contains(text, "\nshards") {
		t.Errorf("the status is\n%s", text)
	}
}

// TestAReset is refused while nothing is known to be lost, a node does not answer, or keys are not at all nodes, unless
// that is accepted. Keys come before the reset, and a dry run changes nothing.
func TestAReset(t *testing.T) {
	lost := api.Cluster{On: true, Lost: "the database has lost writes: 3 of 64 shards"}
	well := api.Cluster{On: true, Takes: true}
	for name, tt := range map[string]struct {
		two          api.Cluster
		away, keyed  bool // node 2; node 1 has got its keys
		accept, dry  bool
		fails, posts string
	}{
		"nothing is lost":          {two: well, keyed: true, fails: "no node that answers has found"},
		"nothing, accepted":        {two: well, keyed: true, accept: true, posts: "keys 1, keys 2, reset 0"},
		"a dry run":                {two: lost, keyed: true, dry: true},
		"lost":                     {two: lost, keyed: true, posts: "keys 1, keys 2, reset 0"},
		"keys are missing":         {two: lost, fails: "those of node 2 to node 1: its disk is full", posts: "keys 1, keys 2"},
		"missing keys, accepted":   {two: lost, accept: true, posts: "keys 1, keys 2, reset 0"},
		"a node is away":           {away: true, keyed: true, fails: "node 2: the relay answered Service Unavailable: what its clients send again"},
		"a node away, accepted":    {away: true, keyed: true, accept: true, posts: "keys 1, reset 0"},
		"a node away in a dry run": {away: true, keyed: true, dry: true},
	} {
		t.Run(name, func(t *testing.T) {
			one := lost
			if tt.two.Takes {
				one = well
			}
			one.Members = []api.ClusterMember{{Node: 1}, {Node: 2}, {Node: 3, Forgotten: true}}
			var posts []string
			client := api.NewLocalClient(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				node, _ := strconv.Atoi(r.Header.Get("Mta-Node"))
				var answer any
				switch {
				case node == 2 && tt.away:
					w.WriteHeader(http.StatusServiceUnavailable)
					answer = map[string]any{"error": map[string]any{"message": "connection refused"}}
				case r.Method == "GET" && node == 2:
					answer = tt.two
				case r.Method == "GET":
					answer = one
				default:
					var in api.Reset
					if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v1/cluster/reset" {
						t.Errorf("%s: %v", r.URL, err)
					}
					what, done := "reset", api.WasReset{Done: true}
					if in.Keys {
						what = "keys"
						if node == 2 && !tt.keyed {
							done.Without = []api.MovingNode{{Node: 1, LeftOut: "its disk is full"}}
						}
					}
					posts, answer = append(posts, fmt.Sprint(what, " ", node)), done
				}
				json.NewEncoder(w).Encode(answer)
			}))
			var out, notes bytes.Buffer
			c := &cli{out: &out, err: &notes}
			r := resetting{c: c, in: api.Intent{DryRun: tt.dry}, accept: tt.accept, noWait: true}
			done, err := r.run(t.Context(), client, nil)
			if err == nil && tt.fails != "" || err != nil && (tt.fails == "" || !strings.Contains(err.Error(), tt.fails)) {
				t.Errorf("the error is %v, want %q", err, tt.fails)
			}
			if all := strings.Join(posts, ", "); all != tt.posts {
				t.Errorf("it has posted %q, want %q", all, tt.posts)
			}
			if err := c.wasReset(done); err != nil || done.Reset != strings.Contains(tt.posts, "reset") {
				t.Errorf("%+v, %v", done, err)
			}
			if all := out.String(); tt.dry && (!strings.Contains(all, "node 1: the database has lost writes: 3 of 64 shards\n") ||
				!strings.Contains(all, "node 2: ")) {
				t.Errorf("it prints %s", all)
			}
		})
	}
}

// TestAResetIsWatched for a term, although the nodes have all shards until they see the reset.
func TestAResetIsWatched(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		client := api.NewLocalClient(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			json.NewEncoder(w).Encode(api.Cluster{On: true, Takes: true, Shards: owner.Shards / 2})
		}))
		r := resetting{c: &cli{out: io.Discard, err: io.Discard}}
		began := time.Now()
		lacks, err := r.watch(t.Context(), client, []int{1, 2})
		if took := time.Since(began); err != nil || lacks != "" || took < membership.Term.Waits() || took > membership.Term.Waits()+time.Second {
			t.Errorf("after %v: %q, %v", took, lacks, err)
		}
	})
}

// TestWhereMovedMailIs: a message is followed over several nodes, also in parts; what is nowhere keeps its id.
func TestWhereMovedMailIs(t *testing.T) {
	queued := map[string][]string{"1": {"00000000000b1"}, "2": nil, "3": {"00000000000c3", "00000000000d3"}}
	moved := map[string]map[string]string{"2": {"00000000000a1": "00000000000a2", "00000000000b1": "00000000000b2"},
		"3": {"00000000000a2": "00000000000c3", "00000000000b2": "00000000000d3"}}
	client := api.NewLocalClient(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node, l := r.Header.Get("Mta-Node"), api.List{Complete: true, Moved: map[string][]string{}}
		for _, id := range r.URL.Query()["id"] {
			id = strings.ToLower(id)
			if slices.Contains(queued[node], id) {
				l.Messages = append(l.Messages, api.Item{ID: id})
			}
			if as := moved[node][id]; as != "" {
				l.Moved[id] = []string{as}
			}
		}
		json.NewEncoder(w).Encode(l)
	}))
	for id, want := range map[string][]string{"00000000000A1": {"00000000000c3"}, "00000000000a2": {"00000000000c3"},
		"00000000000b1": {"00000000000b1", "00000000000d3"}, "00000000000e1": {"00000000000e1"}} {
		if got := nowAt(t.Context(), client, []int{1, 2, 3}, []string{id}); !slices.Equal(got, want) {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
}

// TestAForgottenNodeHasNoSettings that could be the same.
func TestAForgottenNodeHasNoSettings(t *testing.T) {
	var out bytes.Buffer
	c := &cli{out: &out, err: io.Discard}
	err := c.clusterStatus(api.Cluster{On: true, Members: []api.ClusterMember{{Node: 3, Forgotten: true, Differ: []string{}}}})
	if err != nil || strings.Contains(out.String(), "same") || !strings.Contains(out.String(), "forgotten") {
		t.Errorf("%v: %s", err, &out)
	}
}
