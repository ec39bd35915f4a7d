package main

import (
	"log/slog"
	"os"
)

// warnRoot prints that the relay has more rights than it needs.
func warnRoot(log *slog.Logger) {
	if os.Geteuid() == 0 {
		log.Warn("THE RELAY RUNS AS ROOT: a fault in it would give the whole machine away",
			"remedy", `write user = "mta" into the configuration, or start it as another user: ports below 1024 take AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit`)
	}
}
