package mta

import (
	"fmt"
	"net"

	"example.org/mta/delivery/egress"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
)

// Faults says, a sentence each, what keeps a relay with a configuration from starting on this machine.
// Ports that others have are not looked at: one of them may be this very relay, which is running.
func Faults(cfg *config.Config) []string {
	out := foldersOf(cfg).faults(cfg)
	add := func(title, origin string, addresses ...string) {
		for _, address := range addresses {
			if fault := foreign(address); fault != "" {
				out = append(out, fmt.Sprintf("%s: %s", place(title, origin), fault))
			}
		}
	}
	for _, l := range cfg.Listeners {
		add(fmt.Sprintf("listener %q", l.Name), l.Origin("address"), l.Address...)
	}
	for _, a := range cfg.APIs {
		add(fmt.Sprintf("api %q", a.Name), a.Origin("address"), a.Address...)
	}
	add("console", cfg.Console.Origin("address"), cfg.Console.Address)
	add("http", cfg.HTTP.Origin("address"), cfg.HTTP.Address)
	return out
}

// Unreadable returns why the relay's user, as far as it is known, can't read the configuration file at path;
// "": nothing is known against it.
func Unreadable(cfg *config.Config, path string) string {
	return foldersOf(cfg).unreadable(path)
}

// foreign returns in words that this machine lacks the address of a listener.
func foreign(listener string) string {
	address, err := net.ResolveTCPAddr("tcp", listener)
	if listener == "" || err != nil || address.IP == nil || address.IP.IsUnspecified() {
		return ""
	}
	if ip := address.AddrPort().Addr().Unmap(); egress.Lacks(ip) {
		return fmt.Sprintf("this machine does not have the address %s, so that the relay can't start", ip)
	}
	return ""
}

// neverRetried finds where mail is given up before it is tried a second time.
func neverRetried(cfg *config.Config) (out []string) {
	look := func(title, origin string, t *config.Traffic) {
		first := t.RetryInterval.First
		if list := t.RetryInterval.List; len(list) > 0 {
			first = list[0]
		}
		if first > t.MaxAge {
			out = append(out, fmt.Sprintf("%s: max_age (%s) is shorter than retry_interval (%s): mail is given up after one attempt",
				place(title, origin), api.Age(t.MaxAge), api.Age(first)))
		}
	}
	look("defaults", cfg.Defaults.Origin("max_age"), &cfg.Defaults.Traffic)
	for _, p := range cfg.Providers {
		if p.Sets("max_age") || p.Sets("retry_interval") {
			look(fmt.Sprintf("provider %q", p.Name), p.Origin("max_age"), cfg.Traffic("", p.Name))
		}
	}
	for _, d := range cfg.Domains {
		if d.Sets("max_age") || d.Sets("retry_interval") {
			look(fmt.Sprintf("domain %q", d.Pattern), d.Origin("max_age"), cfg.Traffic(string(d.Pattern), ""))
		}
	}
	return out
}
