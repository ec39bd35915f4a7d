package mta

import (
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"example.org/mta/internal/parking"
	"example.org/mta/internal/settings"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
	"example.org/mta/operator/history"
)

func (r *operators) openControl(cfg *config.Config, undo *undoer) error {
	var err error
	if r.socket = r.opts.Control; r.socket == nil {
		r.socket, err = api.Listen(cfg.Control.Socket, fs.FileMode(cfg.Control.Mode))
	}
	if err != nil {
		return err
	}
	undo.add(func() { r.socket.Close() })
	if r.audit, err = audit.Open(audit.Config{Dir: filepath.Join(cfg.DataDir, config.AuditLog), Now: r.now,
		Log: r.log}); err != nil {
		return err
	}
	undo.add(func() { r.audit.Close() })
	r.openHistory(cfg)
	r.api = r.answers()
	r.control = api.NewServer(r.api)
	return nil
}

// backups takes backups of the relay's stores.
func (r *operators) backups() *datadir.Backup {
	b := &datadir.Backup{
		Version: r.opts.Version, ConfigFile: r.opts.ConfigFile, InForce: r.inForce,
		Places: r.data.Places, Queue: r.queue,
		Databases: map[string]datadir.Copied{"destdb": r.destinations, "suppression.db": r.listed},
		Letters:   maildropOf(r.inForce()), Halt: r.pickup.Halt, Now: r.now,
	}
	if d, ok := r.warm.File().(datadir.Copied); ok {
		b.Databases["warmup.db"] = d
	}
	if r.streams != nil {
		b.Databases["streams.db"] = r.streams
	}
	return b
}

// ControlHandler answers as the control socket does.
func (r *operators) ControlHandler() http.Handler { return r.control.Handler() }

// announce writes down where the relay is, for commands of users who can't read the configuration.
func (r *operators) announce() {
	cfg := r.policy.Load().Config
	w := config.Whereabouts{
		Hostname: cfg.Hostname, DataDir: cfg.DataDir, Socket: cfg.Control.Socket, Accounting: cfg.Accounting.Path,
		SMTP: config.ForSendmail(cfg.Listeners, r.addressesOf),
	}
	if err := config.Announce(cfg.DataDir, w); err != nil {
		r.log.Warn("writing down where the relay is: users who can't read its configuration may not find it", "dir",
			cfg.DataDir, "error", err)
	}
	if r.opts.Announce == "" {
		return
	}
	if err := config.Announce(r.opts.Announce, w); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Debug("writing down where the relay is", "dir", r.opts.Announce, "error", err)
	}
}

// state reports whether the relay accepts mail, and why it refuses it.
func (r *stores) state() (state, reason string) {
	if !r.life.Serving.Load() {
		return api.Starting, ""
	}
	if why, yes := r.life.Draining(); yes {
		return api.Draining, why
	}
	if reason = r.store.Refusing(); reason != "" {
		return api.Refusing, reason
	}
	return api.Running, ""
}

// Status returns how the relay is.
func (r *operators) Status() api.Status {
	cfg, s := r.policy.Load().Config, r.queue.Stats()
	state, reason := r.state()
	use := r.delivery.Counts()
	return api.Status{
		Metrics:  r.http.address(),
		Version:  r.opts.Version,
		Hostname: cfg.Hostname,
		NodeID:   cfg.NodeID,
		PID:      os.Getpid(),
		State:    state,
		Reason:   reason,
		Rules:    r.rules.List(),
		Alarms:   append([]api.Alarm{}, r.alarms.List()...), // never null in JSON
		Started:  r.life.Started,
		Config:   r.configPath(),
		Pending:  r.pending(),
		SMTP:     r.listeners.Addresses(listen.SMTP),
		HTTP:     r.listeners.Addresses(listen.HTTP),
		Queue: api.QueueStats{
			Recovered: s.Recovered, Accepted: s.Accepted, Delivered: s.Delivered, Bounced: s.Bounced,
			Expired: s.Expired, Removed: s.Removed, Moved: s.Transferred, Queued: s.Queued,
		},
		States:  r.queued.States(),
		Waiting: r.waiting(),
		Rates:   r.rates.PerSecond(r.now(), r.tally.Total()),
		Connections: api.Connections{In: r.clients.Open(""), Out: use.Live, Waiting: use.Waiting, Running: use.Running,
			Lowered: lowered(wiring.ShareDescriptors(r.files, cfg).Lowered(cfg))},
		Memory: api.Memory{Process: history.ProcessMemory(), Schedule: s.MemoryBytes},
		Disk:   api.Disk{Queue: s.Bytes, Live: s.LiveBytes, Free: s.FreeBytes},
	}
}

// waiting is why queued mail waits.
func (r *operators) waiting() api.Waiting {
	p, median := r.queued.Waits.Picture(), api.UnknownFigure()
	if latest := r.history.Latest(history.Relay, ""); latest != nil {
		median = api.Figure(latest[history.DelayP50])
	}
	return api.Waiting{Recipients: p.Total(), Reasons: p.ByReason(), Median: median,
		Leave: r.rates.PerSecond(r.now(), r.tally.Total()).Delivered}
}

// stuck is how much mail waits for anything but its time or an operator's release, and why all mail waits.
func (r *operators) stuck() (n int, why string) {
	w := r.waiting()
	for _, x := range w.Reasons {
		if x.Reason != parking.Scheduled && x.Reason != parking.Held {
			n += x.Recipients
		}
	}
	return n, w.Line(r.now())
}

// lowered puts lowered limits into the API's words.
func lowered(list []wiring.Lowered) (out []api.LoweredConnections) {
	for _, l := range list {
		out = append(out, api.LoweredConnections(l))
	}
	return out
}

// ScheduleBytes is the memory of the queue's schedule: it grows with what is queued, and holds no
// pointers.
func (r *stores) ScheduleBytes() int64 { return r.queue.Stats().MemoryBytes }

// configPath is the configuration's file in full, for those who are in another folder; "" without one.
func (r *stores) configPath() string {
	if r.opts.ConfigFile == "" {
		return ""
	}
	path, err := filepath.Abs(r.opts.ConfigFile)
	if err != nil { // nobody knows where we are
		return r.opts.ConfigFile
	}
	return path
}

// Config prints the configuration in force, without secrets.
func (r *stores) Config() string { return string(config.Effective(r.policy.Load().Config)) }

// ConfigObject gives the same for JSON.
func (r *stores) ConfigObject() map[string]any { return settings.Object(r.policy.Load().Config) }
