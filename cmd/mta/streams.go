package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const streamsHelp = `List the streams of events: how many events wait for each receiver
and since when, the rate of the last minute, and the last error. A stream is following
the head of the accounting log, behind it, failing (tried again until its receiver
accepts), or paused.`

func newStreams(c *cli) *cobra.Command {
	cmd := whole(c, &cobra.Command{
		Use: "streams", Short: "show and change the streams of events", Long: streamsHelp,
		Example: "  mta streams\n  mta streams show app\n  mta streams replay app --from 2h", Args: noArgs,
	}, listing.Streams, api.OpStreams, `there are no streams; to add one: stream "app" { to = "https://..." }`)
	cmd.AddCommand(newStreamsShow(c), newStreamsPause(c, true), newStreamsPause(c, false), newStreamsSkip(c),
		newStreamsReplay(c), newStreamsTest(c), newStreamsKey(c))
	return cmd
}

func lostInWords(s *api.Stream) string {
	const why = "accounting files were deleted or damaged before the stream had read them"
	gaps := plural(int(s.Gaps), "gap")
	switch {
	case s.Uncounted == 0:
		return fmt.Sprintf("%s in %s", plural(int(s.Lost), "event"), gaps)
	case s.Lost == 0:
		return fmt.Sprintf("an unknown number of events in %s: %s", gaps, why)
	}
	return fmt.Sprintf("at least %s in %s: %s", plural(int(s.Lost), "event"), gaps, why)
}

func newStreamsShow(c *cli) *cobra.Command {
	return c.streamCommand("show", "show a stream, and the events that its receiver has refused",
		"Show a stream, and the last 100 events that its receiver has refused: 'mta log --id ID' shows\ntheir records.",
		func(ctx context.Context, client *api.Client, name string) (any, func() error, error) {
			s, err := api.OpStream.Call(ctx, client, api.None{}, name)
			return s, func() error { return c.showStream(&s) }, err
		})
}

func (c *cli) showStream(s *api.Stream) error {
	line := c.facts(11).add
	line("stream", "%s", s.Name)
	line("to", "%s", s.To)
	line("state", "%s, at %s", s.State, s.At)
	if s.LagEvents > 0 || s.LagBytes > 0 {
		line("lag", "about %s for %s; %s of the log", plural(int(s.LagEvents), "event"), listing.Lag(s).Text,
			legible.Size(s.LagBytes))
	}
	line("delivered", "%s in %s since the start of the relay; %.1f/s in the last minute",
		plural(int(s.Delivered), "event"), plural(int(s.Requests), "request"), s.Rate)
	if s.LastError != "" {
		line("failures", "%d; the last %s: %s", s.Failures, moment(s.ErrorAt, c.now()), s.LastError)
	}
	if s.NextTry.After(c.now()) {
		line("next try", "%s", moment(s.NextTry, c.now()))
	}
	if s.Gaps > 0 {
		line("lost", "%s", lostInWords(s))
	}
	if len(s.SetAside) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	t := draw.New("ANSWER", "REFUSED EVENT", "TYPE", "MESSAGE", ">AGE")
	for _, e := range s.SetAside {
		t.Add(e.Reason, e.EventID, e.Type, e.ID, legible.Age(c.now().Sub(e.At)))
	}
	return t.Write(c.out, c.screen)
}

// streamCommand makes a command about one stream. do returns what --json prints, and how to print it for people.
func (c *cli) streamCommand(
	use, short, long string, do func(context.Context, *api.Client, string) (any, func() error, error),
) *cobra.Command {
	return shows(c, &cobra.Command{
		Use: use + " NAME", Short: short, Long: long, Args: oneArg("the stream's name"),
		ValidArgsFunction: c.complete(streamNames),
	}, func(ctx context.Context, client *api.Client, args []string) (any, func() error, error) {
		return do(ctx, client, args[0])
	})
}

func newStreamsPause(c *cli, pause bool) *cobra.Command {
	use, short, long, done := "resume", "send a stream's events again",
		"End the pause of a stream. One whose receiver failed is tried at once.", "stream %s is resumed\n"
	row := api.OpResumeStream
	if pause {
		row = api.OpPauseStream
		use, short = "pause", "send no events of a stream until it is resumed"
		long = "Send no events of a stream until it is resumed, over restarts too. The events wait in " +
			"the\naccounting log, up to the stream's hold."
		done = "stream %s is paused\n"
	}
	var in api.Intent
	cmd := c.streamCommand(use, short, long,
		func(ctx context.Context, client *api.Client, name string) (any, func() error, error) {
			s, err := row.Call(ctx, client, in, name)
			return s, func() error {
				if c.wouldChange(s.Effect, "stream") {
					return nil
				}
				fmt.Fprintf(c.out, done, draw.Clean(name))
				return nil
			}, err
		})
	changeFlags(cmd, &in)
	return cmd
}

func newStreamsSkip(c *cli) *cobra.Command {
	var in api.Intent
	cmd := c.streamCommand("skip", "leave out all events that wait",
		"Skip all events that wait for a receiver. 'mta streams replay' sends them after all, while the\naccounting "+
			"log has them.",
		func(ctx context.Context, client *api.Client, name string) (any, func() error, error) {
			m, err := api.OpSkipStream.Call(ctx, client, in, name)
			return m, func() error { return c.movedStream(name, &m, "event") }, err
		})
	changeFlags(cmd, &in)
	return cmd
}

func newStreamsReplay(c *cli) *cobra.Command {
	var (
		in   api.Intent
		from string
	)
	cmd := c.streamCommand("replay", "send events once more",
		"Send the events of a stream again, from a time or an event on. Receivers recognize each by its\nevent_id.",
		func(ctx context.Context, client *api.Client, name string) (any, func() error, error) {
			to, err := c.replayFrom(from)
			if err != nil {
				return nil, nil, err
			}
			to.Intent = in
			m, err := api.OpReplayStream.Call(ctx, client, to, name)
			return m, func() error { return c.movedStream(name, &m, "stream") }, err
		})
	changeFlags(cmd, &in)
	cmd.Example = "  mta streams replay app --from 2h\n  mta streams replay app --from " +
		"mta1-20260301T120000-000000004711"
	cmd.Flags().StringVar(&from, "from", "", "a `time`, as in 'mta log --since', or an event_id")
	return cmd
}

// replayFrom reads --from.
func (c *cli) replayFrom(from string) (to api.MoveStream, err error) {
	if from == "" {
		return to, hinted{
			usageError{errors.New("--from is missing: the time, or the event_id, of the first event to send again")},
			"for the events of the last two hours: --from 2h"}
	}
	if _, _, err := accounting.ParseEventID(from); err == nil {
		return api.MoveStream{Event: from}, nil
	}
	since, err := c.parseTime("--from", from)
	if err != nil {
		return to, err
	}
	return api.MoveStream{Since: since}, nil
}

func (c *cli) movedStream(name string, m *api.MovedStream, what string) error {
	if c.wouldChange(m.Effect, what) {
		return nil
	}
	fmt.Fprintf(c.out, "stream %s goes on from %s (was at %s)\n", draw.Clean(name), m.To, m.From)
	return nil
}

func newStreamsTest(c *cli) *cobra.Command {
	var in api.Intent
	cmd := c.streamCommand("test", "send an event of the type Test",
		"Send an event of the type Test to a stream's receiver at once, ahead of waiting events, and print\nits "+
			"answer. The exit status is 1 if the receiver did not accept it.",
		func(ctx context.Context, client *api.Client, name string) (any, func() error, error) {
			r, err := api.OpTestStream.Call(ctx, client, in, name)
			if err == nil && r.Error != "" {
				err = fmt.Errorf("the test event of stream %s was not delivered: %s", draw.Clean(name),
					draw.Clean(strings.TrimSpace(r.Error)))
			}
			return r, func() error {
				if r.DryRun {
					fmt.Fprintln(c.out, "1 event would be sent")
					return nil
				}
				fmt.Fprintf(c.out, "the receiver of stream %s has taken the event %s\n", draw.Clean(name), r.EventID)
				return nil
			}, err
		})
	changeFlags(cmd, &in)
	return cmd
}

// streamKey is a secret that signs a stream's requests, and what its receiver verifies them with.
type streamKey struct {
	Secret string `json:"secret,omitempty"` // of a new key
	Public string `json:"public,omitempty"` // "" for a secret that both sides share
}

// newStreamKeys are the makers of keys, by their kinds.
var newStreamKeys = map[string]func() (streamKey, error){
	"shared": func() (streamKey, error) { return streamKey{Secret: events.NewShared()}, nil },
	"ed25519": func() (streamKey, error) {
		secret := events.NewPrivate()
		key, err := events.ParseSecret(secret)
		return streamKey{secret, key.Public()}, err
	},
	"sendgrid": func() (streamKey, error) {
		secret, err := events.NewSendGridKey()
		if err != nil {
			return streamKey{}, err
		}
		signer, err := events.ParseSendGridKey(secret)
		if err != nil {
			return streamKey{}, err
		}
		return streamKey{secret, signer.Public()}, nil
	},
}

func newStreamsKey(c *cli) *cobra.Command {
	kind := ""
	cmd := &cobra.Command{
		Use: "key [STREAM]", Short: "make a key that signs requests, or show a stream's public keys",
		Long: `Make a key for a stream's setting secrets, and print it with the receiver's counterpart:
the same secret (shared), or a public key (ed25519; sendgrid). With the name of a
stream, print the public keys of its secrets.`,
		Example: "  mta streams key\n  mta streams key --kind ed25519\n  mta streams key app",
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&kind, "kind", "shared", "the `kind` of a new key: shared, ed25519 or sendgrid")
	return prints(c, cmd, func(_ context.Context, args []string) ([]streamKey, error) {
		switch {
		case len(args) == 0:
			return makeStreamKey(kind)
		case cmd.Flags().Changed("kind"):
			return nil, errors.New("--kind is for a new key: leave the stream out")
		}
		return c.publicKeys(args[0])
	}, c.showStreamKeys)
}

func makeStreamKey(kind string) ([]streamKey, error) {
	newKey, known := newStreamKeys[kind]
	if !known {
		return nil, fmt.Errorf("there is no kind of key %s: use shared, ed25519 or sendgrid", settings.Quoted(kind))
	}
	key, err := newKey()
	return []streamKey{key}, err
}

// publicKeys returns those of a stream's secrets.
func (c *cli) publicKeys(name string) ([]streamKey, error) {
	cfg, err := c.config()
	if err != nil {
		return nil, err
	}
	var stream *config.Stream
	var names []string
	for _, s := range cfg.Streams {
		if names = append(names, s.Name); s.Name == name {
			stream = s
		}
	}
	switch {
	case stream == nil && len(names) == 0:
		return nil, hinted{errors.New("the configuration has no streams"),
			"name the relay's configuration with --config, or add to it: stream \"app\" { to = \"https://...\" }"}
	case stream == nil:
		return nil, fmt.Errorf("the configuration has no stream %s: there are %s", settings.Quoted(name),
			strings.Join(names, ", "))
	case len(stream.Secrets) == 0:
		return nil, hinted{fmt.Errorf("stream %s has no secrets", settings.Quoted(name)),
			"make one with 'mta streams key'"}
	}
	public, err := stream.PublicKeys()
	keys := make([]streamKey, len(public))
	for i, p := range public {
		keys[i].Public = p
	}
	return keys, err
}

func (c *cli) showStreamKeys(keys []streamKey) error {
	for _, k := range keys {
		if k.Secret != "" {
			fmt.Fprintln(c.out, "secret", k.Secret)
		}
		switch {
		case k.Public != "":
			fmt.Fprintln(c.out, "public", k.Public)
		case k.Secret == "":
			fmt.Fprintln(c.out, "shared: the receiver has the same secret")
		}
	}
	return nil
}
