package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"reflect"
	"slices"
	"strconv"

	"example.org/mta/submission/auth"
)

// Members carries requests to the other nodes of a cluster.
type Members interface {
	// Self is the number of this node, 0 without a cluster.
	Self() int
	// Ask has another node answer a request by FromNode, and sends it by its Write. The whole answer is in memory, and
	// bounded.
	Ask(ctx context.Context, node int, r *http.Request) (*http.Response, error)
}

// Fields of requests for other nodes. Those of the operator are only between nodes.
const (
	nodeHeader     = "Mta-Node"     // the number of the node that answers
	operatorHeader = "Mta-Operator" // percent-encoded
	roleHeader     = "Mta-Role"
)

type nodeKey struct{}

// AtNode has another node of the cluster answer the requests that a client sends with ctx.
func AtNode(ctx context.Context, node int) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// NodeOf returns the node that a context of AtNode names, 0 for none.
func NodeOf(ctx context.Context) int {
	node, _ := ctx.Value(nodeKey{}).(int)
	return node
}

func sendNode(ctx context.Context, h http.Header) {
	if node := NodeOf(ctx); node != 0 {
		h.Set(nodeHeader, strconv.Itoa(node))
	}
}

// rights are what the sender of a request may ask.
type rights struct {
	role    auth.Role
	carried bool // the request is another node's
}

type rightsKey struct{}

// WithRole bounds what a local client may ask with ctx. Over a socket it has no effect: there all may be asked.
func WithRole(ctx context.Context, role auth.Role) context.Context {
	return context.WithValue(ctx, rightsKey{}, rights{role: role})
}

func rightsOf(ctx context.Context) rights {
	if r, bound := ctx.Value(rightsKey{}).(rights); bound {
		return r
	}
	return rights{role: auth.Admin}
}

// allowed refuses a request for which its sender has not the role.
func (o *operation) allowed(ctx context.Context) error {
	r := rightsOf(ctx)
	switch {
	case r.role < o.least:
		return &Error{Status: http.StatusForbidden, Message: fmt.Sprintf("%s takes the role %v", o.name, o.least)}
	case r.carried && !o.travels():
		return o.stays()
	}
	return nil
}

// stays is the error of what is not carried to other nodes.
func (o *operation) stays() error {
	return Invalid("ask at that node", "%s is answered at the node itself alone", o.name)
}

// travels reports whether another node may be asked: not for what goes on, or may be of any size.
func (o *operation) travels() bool {
	paged := reflect.PointerTo(o.request).Implements(reflect.TypeFor[pager]())
	return o.takes == "" && (o.media == "" || paged || o.media == "message/rfc822" || o.media == "text/plain")
}

// pager is a request for a page, or for all in another form than JSON, which only the node itself answers: then paged
// returns the error for others.
type pager interface{ paged() error }

// elsewhere has another node answer the operation if the request names one, and reports whether it does.
func (o *operation) elsewhere(s *Server, w http.ResponseWriter, r *http.Request) (bool, error) {
	named := r.Header.Get(nodeHeader)
	if named == "" {
		return false, nil
	}
	node, err := strconv.Atoi(named)
	m := s.config.Members
	switch {
	case err != nil || node < 1 || node > 1023:
		return true, Invalid("", "%s: want the number of a node, from 1 to 1023, not %.20q", nodeHeader, named)
	case m == nil || m.Self() == 0:
		return true, &Error{Status: http.StatusConflict,
			Message: "this relay is in no cluster: its configuration has no cluster block"}
	case node == m.Self():
		return false, nil
	case !o.travels():
		return true, o.stays()
	}
	return true, o.carry(m, node, w, r)
}

// carry has another node answer a request.
func (o *operation) carry(m Members, node int, w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return readError(err)
	}
	sent := false
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteHeaders: func() { sent = true }})
	out, err := http.NewRequestWithContext(ctx, r.Method, "http://node"+r.URL.RequestURI(),
		bytes.NewReader(body))
	if err != nil {
		return Invalid("", "the request can't be sent: %v", err)
	}
	for _, name := range []string{"Content-Type", reasonHeader} {
		if value := r.Header.Get(name); value != "" {
			out.Header.Set(name, value)
		}
	}
	out.Header.Set(operatorHeader, url.PathEscape(ActorOf(r.Context()).Name()))
	out.Header.Set(roleHeader, rightsOf(r.Context()).role.String())
	answer, err := m.Ask(r.Context(), node, out)
	if err == nil && (answer.StatusCode < 200 || answer.StatusCode > 599) {
		err = fmt.Errorf("its answer has the status %d", answer.StatusCode)
	}
	if err != nil {
		hint := ""
		if sent && r.Method != http.MethodGet {
			hint = "it may have begun: 'mta actions' at that node shows it"
		}
		return &Error{Status: http.StatusBadGateway, Message: fmt.Sprintf("node %d: %v", node, err), Hint: hint}
	}
	defer answer.Body.Close()
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body) // it is in memory: an error is the client's
	return nil
}

// maxOperator bounds the name of an operator at another node, in octets.
const maxOperator = 200

// FromNode answers a request that another node has carried here: under the role of its operator, who is in the audit
// log with that node, and never by asking a further node.
func (s *Server) FromNode(node int) http.Handler {
	here := s.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, err := url.PathUnescape(r.Header.Get(operatorHeader))
		role := auth.Viewer + auth.Role(slices.Index(auth.Roles, r.Header.Get(roleHeader))) // Anyone without one
		if r.Header.Get(nodeHeader) != "" {
			err = errors.New("it was carried here already")
		}
		if err != nil {
			writeError(w, Invalid("", "a request of node %d: %v", node, err))
			return
		}
		who := Actor{Kind: ByAPI, User: fmt.Sprintf("%.*s at node %d", maxOperator, cmp.Or(name, "somebody"), node)}
		ctx := context.WithValue(WithActor(r.Context(), who), rightsKey{}, rights{role: role, carried: true})
		here.ServeHTTP(w, r.WithContext(ctx))
	})
}
