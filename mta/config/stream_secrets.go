package config

import (
	"fmt"

	"example.org/mta/mta/events"
	"example.org/mta/mta/events/formats"
)

// Signer returns what signs the stream's requests, nil when it has no secrets.
func (s *Stream) Signer() (events.Signer, error) {
	signer, _, err := s.readSecrets()
	return signer, err
}

// PublicKeys returns what receivers verify the signature of each secret by, "" for a secret that both sides share.
func (s *Stream) PublicKeys() ([]string, error) {
	_, public, err := s.readSecrets()
	return public, err
}

func (s *Stream) readSecrets() (signer events.Signer, public []string, err error) {
	if len(s.Secrets) == 0 {
		return nil, nil, nil
	}
	if s.Format == "sendgrid" {
		if len(s.Secrets) > 1 {
			return nil, nil, fmt.Errorf("a request in SendGrid's format has one signature, and there are %d secrets", len(s.Secrets))
		}
		key, err := formats.ParseSendGridKey(string(s.Secrets[0]))
		if err != nil {
			return nil, nil, err
		}
		return key, []string{key.Public()}, nil
	}
	keys := make([]formats.Key, len(s.Secrets))
	for i, secret := range s.Secrets {
		if keys[i], err = formats.ParseSecret(string(secret)); err != nil {
			return nil, nil, err
		}
		public = append(public, keys[i].Public())
	}
	return formats.New(keys...), public, nil
}

// secrets looks at the keys that sign requests.
func (k checker) secrets(s *Stream) {
	if _, err := s.Signer(); err != nil {
		k.problem(&s.block, "secrets", "make one with 'mta streams key'", "secrets of stream %q: %v", s.Name, err)
	}
}
