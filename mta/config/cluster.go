package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"

	"example.org/mta/cluster/ca"
	"example.org/mta/cluster/postgres"
	"example.org/mta/cluster/secrets"
	"example.org/mta/internal/certificates"
	"example.org/mta/internal/settings"
)

// Cluster is the relay's part in a cluster.
//
// The relay is a node of a [cluster](cluster.md). Without a block there is none. All settings but `secrets_key`,
// `replicated`, `replicate`, `takeover` and `on_loss` are required.
type Cluster struct {
	block
	// The PostgreSQL database: a URL or keywords as psql takes them, with all hosts and `sslmode=verify-full`. Keep the
	// password out of the file: `database = env("MTA_CLUSTER_DATABASE")`.
	Database Secret `conf:"database"`
	// Where the node listens and the other nodes reach it, such as `"10.0.0.1:2571"`.
	Address string `conf:"address" check:"listen or off" node:"own"`
	// File in PEM form: the node's certificate, which has its number, from [`mta cluster ca
	// issue`](cli.md#mta-cluster-ca). The relay rereads this file and the two below when they change.
	Certificate string `conf:"certificate" node:"own"`
	// File in PEM form: the key of the certificate.
	Key string `conf:"key" node:"own"`
	// File in PEM form: the certificate of the cluster's authority, `ca.pem`.
	CA string `conf:"ca" node:"own"`
	// File with the key under which secrets that make tokens, such as those of unsubscribe links, API keys, users
	// and certificates of `acme`, and stored templates are in the database: the `secrets.key` of [`mta cluster ca
	// init`](cli.md#mta-cluster-ca), the same for all nodes. Without it a link, a return path, an API key or a user is
	// good at the node that made it, and refused by the others, and templates that were
	// shared stay as they are.
	SecretsKey string `conf:"secrets_key" node:"own"`
	// A managed service replicates the database below PostgreSQL, so that no standby shows. Without it a relay joins
	// only if there is a synchronous standby, and its absence is the alarm `cluster_standby`.
	Replicated bool `conf:"replicated"`
	// What happens to mail under shared limits when the database has been away for 3 minutes. `"wait"`: it waits.
	// `"part"`: it goes on, by the node's [fixed part of each limit](cluster.md#without-the-database).
	OnLoss string `conf:"on_loss" default:"wait" oneof:"wait part" node:"own"`
	// The database has a copy of the queue, with each message before it is accepted, so that another node can [take
	// over](cluster.md#a-queue-that-outlives-its-machine) when this machine and its disk are gone.
	Replicate bool `conf:"replicate" node:"own"`
	// After how long without a sign of life in its copy another node takes the queue over by itself: at least 30
	// seconds, the same for all nodes. `"0s"`: only `mta cluster takeover` does.
	Takeover time.Duration `conf:"takeover" default:"60s" min:"0"`
	// Where the machine is, such as a building or availability zone: its queue is taken over from another one, if
	// there is a node.
	Zone string `conf:"zone" node:"own"`
	Path string // of what the node keeps in data_dir
}

// leastTakeover leaves a node that lives time to write, and one that does not half of it to close its connections.
const leastTakeover = 30 * time.Second

// On reports whether the relay is a node.
func (c *Cluster) On() bool { return c.Database != "" }

// SharesSecrets reports whether the node shares what must not stand in the database in clear.
func (c *Cluster) SharesSecrets() bool { return c.On() && c.SecretsKey != "" }

// Pair is the node's certificate with its key.
func (c *Cluster) Pair() certificates.Pair {
	return certificates.Pair{Certificate: c.Certificate, Key: c.Key}
}

func (k checker) cluster(taken *claims) {
	c := &k.Cluster
	missing, some := "", c.Replicated || c.Replicate || c.SecretsKey != "" || c.OnLoss != "wait" ||
		c.Takeover != time.Minute
	for _, s := range [][2]string{{"ca", c.CA}, {"key", c.Key}, {"certificate", c.Certificate}, {"address", c.Address},
		{"database", string(c.Database)}} {
		if some = some || s[1] != ""; s[1] == "" {
			missing = s[0]
		}
	}
	if missing != "" {
		if some {
			k.problem(&c.block, missing, "docs/cluster.md has a whole block", "cluster has no %s", missing)
		}
		return
	}
	host, port, _ := net.SplitHostPort(c.Address)
	if ip, _ := netip.ParseAddr(host); port == "0" || !ip.IsValid() || ip.IsUnspecified() {
		k.problem(&c.block, "address", `write an address of this machine with a port, such as "10.0.0.1:2571"`,
			"address: the other nodes can't reach %s", settings.Quoted(c.Address))
	}
	if c.Takeover > 0 && c.Takeover < leastTakeover {
		k.problem(&c.block, "takeover", `a node writes each 10 seconds; "0s" has only 'mta cluster takeover' do it`,
			"takeover: %v is less than %v", c.Takeover, leastTakeover)
	}
	if c.Replicate && c.OnLoss == "part" {
		k.problem(&c.block, "on_loss", "leave one of the two out", `on_loss = "part" has no effect with replicate: `+
			"without the database such a node delivers nothing")
	}
	k.claim(taken, c.Address, "cluster", &c.block)
}

// Sums are sums of the settings that all nodes of a cluster need, by their blocks: see settings.Sums. What follows from
// a node's own settings is left out.
func (c *Config) Sums() map[string]string {
	follows := make(map[*string]bool) // from which sources a node has
	for _, p := range c.Pools {
		follows[&p.Overflow] = !p.Set("overflow")
	}
	sums := settings.Sums(c, func(setting any) bool {
		text, ok := setting.(*string)
		return ok && (c.derived[text] || follows[text])
	})
	const pool = `pool "` + DefaultPool + `"`
	if sum := sums[pool]; sum != "" { // a node whose sources are all dedicated has none
		sums[pool] = settings.Some + sum
	}
	return sums
}

// SharedPath is where the node keeps what all nodes share under a kind, such as API keys.
func (c *Cluster) SharedPath(kind string) string { return c.Path + "-" + kind + "s" }

// SecretsPath is where the node keeps the secrets of all nodes.
func (c *Cluster) SecretsPath() string { return c.Path + "-secrets" }

// clusterFiles looks at the certificate, and at the address of the database, which can name files.
func (k checker) clusterFiles() {
	c := &k.Cluster
	if !c.On() {
		return
	}
	own, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
	if err == nil {
		_, _, err = ca.Identity(own.Leaf)
	}
	if err != nil {
		k.problem(&c.block, "certificate", "'mta cluster ca issue' makes it", "certificate of cluster: %s", err)
		return
	}
	roots, err := certificates.ReadAuthorities(c.CA)
	if err == nil {
		_, err = own.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: own.Leaf.NotBefore,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	}
	if err != nil {
		k.problem(&c.block, "ca", "write the ca.pem of 'mta cluster ca init' that has issued the certificate",
			"ca of cluster: %s", err)
	}
	if c.SecretsKey != "" {
		if _, err := secrets.ReadKeys(c.SecretsKey); err != nil {
			k.problem(&c.block, "secrets_key", "write the secrets.key of 'mta cluster ca init'",
				"secrets_key of cluster: %s", err)
		}
	}
	e, err := postgres.Open(postgres.Config{Database: string(c.Database)})
	if err != nil {
		k.problem(&c.block, "database", "", "database of cluster: %s", err)
		return
	}
	defer e.Close()
	if open := e.Unprotected(); open != "" {
		k.problem(&c.block, "database", "add sslmode=verify-full, and sslrootcert if it has a private authority",
			"database of cluster: a connection %s", open)
	}
}

// PerNode are the blocks whose limits are each node's own in a cluster, as they are titled, such as `pool "a"`, and as
// LimitsOf names them, "pool a".
func (c *Config) PerNode() map[string]bool {
	all := make(map[string]bool)
	add := func(own bool, b *block, kind, name string) {
		if own {
			all[b.Title()], all[kind+" "+name] = true, true
		}
	}
	for _, x := range c.Providers {
		add(x.LimitsPerNode, &x.block, "provider", x.Name)
	}
	for _, x := range c.Domains {
		add(x.LimitsPerNode, &x.block, "domain", string(x.Pattern))
	}
	for _, x := range c.Sources {
		add(x.LimitsPerNode, &x.block, "source", x.Name)
	}
	for _, x := range c.Pools {
		add(x.LimitsPerNode, &x.block, "pool", x.Name)
	}
	for _, x := range c.Tenants {
		add(x.LimitsPerNode, &x.block, "tenant", x.Name)
	}
	return all
}
