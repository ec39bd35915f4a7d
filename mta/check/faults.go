package check

import (
	"fmt"
	"net"
	"os"

	"example.org/mta/delivery"
	"example.org/mta/mta/config"
	"example.org/mta/mta/datadir"
	"example.org/mta/submission/request"
	"example.org/mta/submission/shared"
)

// Faults says, a sentence each, what keeps a relay with a configuration from starting on this machine.
// Ports that others have are not looked at: one of them may be this very relay, which is running.
func Faults(cfg *config.Config) []string {
	out := foldersOf(cfg, os.Geteuid()).faults(cfg)
	if err := datadir.StillOwn(cfg.DataDir, nil); err != nil {
		out = append(out, fmt.Sprintf("data_dir: %v, and the relay can't start", err))
	}
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
	return foldersOf(cfg, os.Geteuid()).unreadable(path)
}

// foreign returns in words that this machine lacks the address of a listener.
func foreign(listener string) string {
	address, err := net.ResolveTCPAddr("tcp", listener)
	if listener == "" || err != nil || address.IP == nil || address.IP.IsUnspecified() {
		return ""
	}
	if ip := address.AddrPort().Addr().Unmap(); delivery.MachineLacks(ip) {
		return fmt.Sprintf("this machine does not have the address %s, so that the relay can't start", ip)
	}
	return ""
}

// templatesOf reads the templates of a configuration, and of its cluster.
func templatesOf(cfg *config.Config) (*request.Templates, error) {
	of := request.TemplateEntries
	shared, _ := shared.Read(cfg.Cluster.SharedPath(of.Kind), of) // else those of the folder alone
	return request.LoadTemplates(cfg.Templates.Path, shared)
}

// templateFaults returns which templates can't be read: the relay doesn't start with only some of them.
func templateFaults(cfg *config.Config) []string {
	if _, err := templatesOf(cfg); err != nil {
		return []string{fmt.Sprintf("%s: %v, and the relay can't start",
			place("templates", cfg.Templates.Origin("path")), err)}
	}
	return nil
}

// templateWarnings returns whose templates nobody can use.
func templateWarnings(cfg *config.Config) (out []string) {
	stored, err := templatesOf(cfg)
	if err != nil {
		return nil // a fault
	}
	for _, name := range stored.Tenants() {
		if cfg.Tenant(name) == nil {
			out = append(out,
				fmt.Sprintf("%s: the folder %q belongs to a tenant without a block, so that nobody can use its "+
					"templates", place("templates", cfg.Templates.Origin("path")), name))
		}
	}
	return out
}
