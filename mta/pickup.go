package mta

import (
	"io"
	"net"
	"path/filepath"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch"
	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/submission"
	"example.org/mta/submission/maildrop"
)

// newPickup makes what takes sendmail's letters in. Their sessions have the settings, limits and records of the first
// listener, and need no login.
func (r *mailIn) newPickup() *maildrop.Pickup {
	return maildrop.NewPickup(maildrop.Config{
		Dir: maildropOf(r.inForce()),
		Session: func() (net.Conn, func()) {
			cfg := r.inForce()
			first := cfg.Listeners[0]
			return maildrop.Session(
				submission.New(r.joined(wiring.WithoutLogin(wiring.Submission(cfg, first)), first.Name)))
		},
		Hostname: func() string { return r.inForce().Hostname },
		MaxAge:   func() time.Duration { return r.inForce().Defaults.Traffic.MaxAge },
		Report: func(m *envelope.Message, refused []maildrop.Refusal, content io.Reader) error {
			n := dispatch.Notification{Kind: dsn.Failed, Message: m}
			for _, one := range refused {
				result := delivery.Result{Recipient: one.Index, Reply: one.Reply}
				n.Attempts = append(n.Attempts,
					dispatch.Attempt{Pending: queue.Pending{Index: one.Index}, Result: result})
			}
			if wanted := n.Wanted(); len(wanted) > 0 {
				return r.writer.Commit(n, wanted, content)
			}
			return nil
		},
		Now: r.now, Trusted: r.queue.NothingExpiresBefore, Log: r.log,
	})
}

// maildropOf is where sendmail leaves letters.
func maildropOf(cfg *config.Config) maildrop.Dir {
	return maildrop.Dir(filepath.Join(cfg.DataDir, config.Maildrop))
}
