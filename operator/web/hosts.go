package web

import (
	"net/netip"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// hostsPage is a page of the list of hosts.
type hostsPage struct {
	Inputs []input
	Table  *table
	Paging paging
}

var hostsParams = paramsOf(new(api.HostFilter), "after")

func hosts(r *request) (any, error) {
	var f api.HostFilter
	if err := r.read(&f); err != nil {
		return nil, err
	}
	p := hostsPage{Inputs: inputs(&f)}
	l, err := r.relay.Hosts(r.ctx, f, r.get("after"), api.DefaultLimit)
	p.Table = newTable(r, listing.Hosts, l.Hosts)
	acts(p.Table, "/hosts/forget", l.Hosts, func(h *api.Host) []act {
		fields := []any{"host", address(h), "back", "/hosts"}
		more := []string{"/hosts/resume", "/hosts/forget"}
		return []act{{path: "/hosts/suspend", fields: fields, spans: suspensions, more: more}}
	})
	p.Paging = r.paging(l.Next)
	return p, err
}

// address is that of a host without its port, by which actions name it.
func address(h *api.Host) string {
	if ap, err := netip.ParseAddrPort(h.Address); err == nil {
		return ap.Addr().String()
	}
	return h.Name
}

// hostParams are those of all actions on hosts: their buttons stand in one form.
var hostParams = []string{"host", "source", "for"}

func suspendHost(r *request, try Try) (Outcome, error) {
	span, err := r.age("for")
	if err != nil {
		return Outcome{}, err
	}
	done, err := r.relay.SuspendHosts(r.ctx, api.SuspendHosts{Intent: try.intent(), Hosts: r.list("host"), Source: r.get("source"), For: span})
	return Outcome{Count: done.Count, Noun: "host"}, err
}

func resumeHost(r *request, try Try) (Outcome, error) {
	done, err := r.relay.ResumeHosts(r.ctx, api.ResumeHosts{Intent: try.intent(), Hosts: r.list("host")})
	return Outcome{Count: done.Count, Noun: "suspension"}, err
}

func forgetHost(r *request, try Try) (Outcome, error) {
	done, err := r.relay.Forget(r.ctx, api.Forget{Intent: try.intent(), Hosts: r.list("host")})
	return Outcome{Count: done.Count, Noun: "host"}, err
}
