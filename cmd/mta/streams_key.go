package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/events/formats"
)

// streamKey is a secret that signs a stream's requests, and what its receiver verifies them with.
type streamKey struct {
	Secret string `json:"secret,omitempty"` // of a new key
	Public string `json:"public,omitempty"` // "" for a secret that both sides share
}

// newStreamKeys are the makers of keys, by their kinds.
var newStreamKeys = map[string]func() (streamKey, error){
	"shared": func() (streamKey, error) { return streamKey{Secret: formats.NewShared()}, nil },
	"ed25519": func() (streamKey, error) {
		secret := formats.NewPrivate()
		key, err := formats.ParseSecret(secret)
		return streamKey{secret, key.Public()}, err
	},
	"sendgrid": func() (streamKey, error) {
		secret, err := formats.NewSendGridKey()
		if err != nil {
			return streamKey{}, err
		}
		signer, err := formats.ParseSendGridKey(secret)
		if err != nil {
			return streamKey{}, err
		}
		return streamKey{secret, signer.Public()}, nil
	},
}

func newStreamsKey(c *cli) *cobra.Command {
	var kind string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "key [STREAM]",
		Short: "make a key that signs requests, or show a stream's public keys",
		Long: `Make a key that signs the requests of a stream, for its setting secrets, and print it with
what the receiver verifies it by: the same secret (shared), or a public key (ed25519 by
Standard Webhooks; sendgrid for streams in SendGrid's format). With the name of a stream,
print the public keys of its secrets, as the configuration file has them.`,
		Example: "  mta streams key\n  mta streams key --kind ed25519\n  mta streams key app",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var keys []streamKey
			var err error
			switch {
			case len(args) == 1 && cmd.Flags().Changed("kind"):
				return errors.New("--kind is for a new key: leave the stream out")
			case len(args) == 1:
				keys, err = c.publicKeys(args[0])
			default:
				keys, err = makeStreamKey(kind)
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(c.out, keys)
			}
			return c.showStreamKeys(keys)
		},
	}
	cmd.Flags().StringVar(&kind, "kind", "shared", "the `kind` of a new key: shared, ed25519 or sendgrid")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
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
		return nil, hinted{errors.New("the configuration has no streams"), "name the relay's configuration with --config, or add to it: stream \"app\" { to = \"https://...\" }"}
	case stream == nil:
		return nil, fmt.Errorf("the configuration has no stream %s: there are %s", settings.Quoted(name), strings.Join(names, ", "))
	case len(stream.Secrets) == 0:
		return nil, hinted{fmt.Errorf("stream %s has no secrets", settings.Quoted(name)), "make one with 'mta streams key'"}
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
