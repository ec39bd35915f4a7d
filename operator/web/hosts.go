package web

import (
	"net/netip"

	"example.org/mta/operator/api"
)

// hostsPage is a page of the list of hosts.
type hostsPage struct {
	Filter api.HostFilter
	States []api.HostState
	List   api.HostList
	Paging paging
	Spans  []string
}

var hostsParams = []string{"name", "state", "source", "after"}

func hosts(r *request) (any, error) {
	p := hostsPage{States: api.HostStates, Spans: suspensions, Filter: api.HostFilter{Names: r.list("name"), State: api.HostState(r.get("state")), Source: r.get("source")}}
	var err error
	p.List, err = r.relay.Hosts(r.ctx, p.Filter, r.get("after"), api.DefaultLimit)
	p.Paging = r.paging(p.List.Next)
	return p, err
}

// Address is that of a host without its port, by which actions name it.
func (hostsPage) Address(h api.Host) string {
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
