package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"example.org/mta/internal/format"
	"example.org/mta/internal/settings"
	"example.org/mta/mta"
	"example.org/mta/mta/config"
	"example.org/mta/mta/listen"
	"example.org/mta/mta/service"
	"example.org/mta/queue/store"
)

const serveHelp = `Run the relay in the foreground.

SIGTERM or SIGINT stops it: it accepts no more mail, transactions in progress may finish
within shutdown.drain, and the rest stays in the queue. A second signal stops it
immediately; nothing is lost, but mail in transit may be delivered twice. SIGHUP reloads
the configuration file and reopens the log file.

Started by root with user = "..." in the configuration, it switches to that user and
keeps only the right to bind ports below 1024.

Under systemd it is a Type=notify service, with its queue and rates in 'systemctl
status', and takes sockets from socket units, named after its listeners (LISTEN_FDS).
Exit code 78: another start would end the same way, since the configuration has an error
or does not match the socket units; the data are in a format that this version does not
read; a segment of the queue is missing; the relay may not use a file or directory; the
number of its node in the cluster belongs to another data directory; or, with
MTA_REQUIRE_VOLUME=true as in the container image, data_dir is on no volume.`

func newServe(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "serve", Short: "run the relay", Long: serveHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.Root().ResetCommands() // the others would stay in memory as long as the relay runs
			return c.serve(cmd.Context())
		},
	}
}

func (c *cli) serve(ctx context.Context) error {
	cfg, err := c.config()
	if problems := (settings.Problems)(nil); errors.As(err, &problems) {
		c.printError(err)
		return exitError(exitConfig) // the next start would find the same
	} else if err != nil {
		return c.notStarted(err)
	}
	if err := service.AsUser(cfg.User); err != nil {
		c.printError(err)
		return exitError(exitConfig)
	}
	if err := c.requireVolume(cfg.DataDir); err != nil {
		return err
	}
	log, err := service.OpenLog(cfg.Log, c.err, c.env("JOURNAL_STREAM"))
	if err != nil {
		return c.notStarted(err)
	}
	defer log.Close()
	service.GuardMemory(log.Logger)
	warnRoot(log.Logger)
	manager := service.Manager{Socket: c.env("NOTIFY_SOCKET")}
	sockets, err := listen.Passed(c.env)
	if err != nil {
		return c.notStarted(err)
	}

	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM, os.Interrupt)
	defer signal.Stop(signals)

	relay, err := c.openRelay(ctx, cfg, log, manager, sockets)
	if err != nil {
		return c.notStarted(fmt.Errorf("starting the relay: %w", err))
	}
	log.Info("starting", "version", thisBuild().Version, "config", orDefaults(c.configPath()), "pid", os.Getpid())

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	if c.env("GOGC") == "" {
		go service.SaveMemory(ctx, relay.ScheduleBytes)
	}
	go manager.Report(ctx, relay.Status)
	for {
		select {
		case err := <-ended:
			return err
		case s := <-signals:
			switch {
			case s == syscall.SIGHUP:
				c.reload(ctx, relay, log, manager)
			case ctx.Err() != nil:
				log.Warn("second signal: stopping at once, what is under way may be delivered twice", "signal", s)
				return errors.New("stopped at once by a second signal")
			default:
				log.Info("signal: stopping", "signal", s)
				manager.Notify("STOPPING=1")
				stop()
				defer manager.Busy("stopping")()
			}
		}
	}
}

// openRelay opens the relay. While that takes long, as with a large queue, the service manager hears of it.
func (c *cli) openRelay(ctx context.Context, cfg *config.Config, log *service.Log, manager service.Manager,
	sockets []listen.Socket) (*mta.Relay, error) {
	defer manager.Busy("opening the queue")()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt) // a copy of the queue can be waited for
	defer stop()
	return mta.New(cfg, mta.Options{
		Context:    ctx,
		Log:        log.Logger,
		Version:    thisBuild().Version,
		ConfigFile: c.configPath(),
		Env:        c.env,
		Announce:   c.announceIn,
		Ready:      func(*mta.Relay) { manager.Notify("READY=1") },
		Sockets:    sockets,
		OnReload:   func(cfg *config.Config) { log.Set(cfg.Log) },
	})
}

// reload answers SIGHUP. When it fails, the relay goes on as it was.
func (c *cli) reload(ctx context.Context, relay *mta.Relay, log *service.Log, manager service.Manager) {
	manager.Notify(service.Reloading())
	defer manager.Notify("READY=1")
	if err := log.Reopen(); err != nil {
		log.Error("reopening the log file", "error", err)
	}
	done, err := relay.Hangup(ctx)
	if err != nil {
		log.Error("reload: nothing has changed", "error", err)
		return
	}
	log.Info("reloaded", "changes", len(done.Changes), "waiting for a restart", len(done.Restart))
}

// notStarted adds to why a relay can't start what most often is behind it. Files that it can't use need an operator.
func (c *cli) notStarted(err error) error {
	file := (*fs.PathError)(nil)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return hinted{err, "another program has the port, perhaps another relay or a web server; to find it: ss -ltnp"}
	case errors.Is(err, format.ErrRefused), errors.Is(err, listen.ErrSockets), errors.Is(err, store.ErrMissing):
		return err
	case !errors.As(err, &file) && errors.Is(err, syscall.EACCES):
		return hinted{err, "this user lacks the privilege for ports below 1024"}
	case file == nil:
		return err
	case errors.Is(err, fs.ErrPermission):
		err = hinted{err, fmt.Sprintf("let the user %s use %s: change its owner, group or mode", userName(), file.Path)}
	case errors.Is(err, syscall.EROFS):
		err = hinted{err,
			"the relay can't write there: name another directory in the configuration, such as data_dir = " +
				"\"/var/lib/mta\", or allow this one in its unit: ReadWritePaths="}
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR):
		err = hinted{err,
			"move away what is there, or name another path in the configuration: 'mta check' names the setting"}
	case errors.Is(err, fs.ErrNotExist) && file.Path == c.configPath():
		err = hinted{err, "write one there, or name another with --config"}
	default:
		return err
	}
	c.printError(err)
	return exitError(exitConfig)
}

// warnRoot prints that the relay has more rights than it needs.
func warnRoot(log *slog.Logger) {
	if os.Geteuid() == 0 {
		log.Warn("THE RELAY RUNS AS ROOT: a fault in it would give the whole machine away",
			"remedy", `write user = "mta" into the configuration, or start it as another user: ports below 1024 take `+
				"AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit")
	}
}

// volumeEnv is set in the container image. True: data_dir must be on a volume.
const volumeEnv = "MTA_REQUIRE_VOLUME"

// requireVolume refuses a data directory in the file system of the container, which ends with the container, and all
// accepted mail with it.
func (c *cli) requireVolume(dataDir string) error {
	if required, err := strconv.ParseBool(c.env(volumeEnv)); err != nil || !required ||
		!service.SameMount(dataDir, "/") {
		return nil
	}
	c.printError(hinted{
		fmt.Errorf("data_dir %s is on no volume: it would be lost with the container, and all queued mail with it",
			dataDir),
		"mount a volume there, or set " + volumeEnv + "=false if nothing has to be kept",
	})
	return exitError(exitConfig)
}
