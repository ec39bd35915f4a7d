package web

import (
	"net/netip"

	"example.org/mta/mta/control"
)

// hostsPage is a page of the list of hosts.
type hostsPage struct {
	Filter control.HostFilter
	States []control.HostState
	List   control.HostList
	Paging paging
	Spans  []string
}

var hostsParams = []string{"name", "state", "source", "after"}

func hosts(r *request) (any, error) {
	p := hostsPage{States: control.HostStates, Spans: suspensions, Filter: control.HostFilter{Names: r.list("name"), State: control.HostState(r.get("state")), Source: r.get("source")}}
	var err error
	p.List, err = r.relay.Hosts(r.ctx, p.Filter, r.get("after"), control.DefaultLimit)
	p.Paging = r.paging(p.List.Next)
	return p, err
}

// Address is that of a host without its port, by which actions name it.
func (hostsPage) Address(h control.Host) string {
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
	done, err := r.relay.SuspendHosts(r.ctx, control.SuspendHosts{Intent: try.intent(), Hosts: r.list("host"), Source: r.get("source"), For: span})
	return Outcome{Count: done.Count, Noun: "host"}, err
}

func resumeHost(r *request, try Try) (Outcome, error) {
	done, err := r.relay.ResumeHosts(r.ctx, control.ResumeHosts{Intent: try.intent(), Hosts: r.list("host")})
	return Outcome{Count: done.Count, Noun: "suspension"}, err
}

func forgetHost(r *request, try Try) (Outcome, error) {
	done, err := r.relay.Forget(r.ctx, control.Forget{Intent: try.intent(), Hosts: r.list("host")})
	return Outcome{Count: done.Count, Noun: "host"}, err
}
