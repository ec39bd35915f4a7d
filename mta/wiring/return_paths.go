package wiring

import (
	"path/filepath"

	"example.org/mta/bounce/returnpath"
	"example.org/mta/cluster/secrets"
	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
)

const (
	// ReturnPathSecret is the file of the secrets in the data directory, and their name among those of all nodes.
	ReturnPathSecret = "return-path-secret"
	// SecretsAtOnce is how many secrets are in force while one takes over from another.
	SecretsAtOnce = 2
)

// ReturnPathKeys returns the keys of a configuration to who only looks at tokens.
func ReturnPathKeys(cfg *config.Config) (*returnpath.Keys, error) {
	keys, err := ReturnPathKeysFrom(cfg, func() ([][]byte, error) {
		return smallfile.ExistingSecrets(filepath.Join(cfg.DataDir, ReturnPathSecret), SecretsAtOnce)
	})
	if err != nil {
		return nil, err
	}
	all, err := secrets.Existing(cfg.Cluster.SecretsPath(), ReturnPathSecret)
	if err != nil {
		return nil, err
	}
	others := new(returnpath.Others)
	keys.And(others)
	return keys, others.Set(all)
}

// ReturnPathKeysFrom makes the keys of a configuration, by the secrets in the data directory where it names none.
func ReturnPathKeysFrom(cfg *config.Config, own func() ([][]byte, error)) (*returnpath.Keys, error) {
	if len(cfg.ReturnPaths.Secrets) > 0 {
		return cfg.ReturnPaths.Keys()
	}
	all, err := own()
	if err != nil {
		return nil, err
	}
	return returnpath.New(returnpath.Valid, all...)
}
