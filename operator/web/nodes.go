package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"example.org/mta/operator/api"
)

// nodeKey is the key of the number of the node that a request is about.
type nodeKey struct{}

// nodePath is where the pages of another node of the cluster are.
func nodePath(node int) string { return "/node/" + strconv.Itoa(node) }

// atNode has another node of the cluster answer what the pages below its path ask and do.
func (s *Server) atNode(w http.ResponseWriter, r *http.Request) {
	node, _ := strconv.Atoi(r.PathValue("node"))
	prefix, nested := nodePath(node), r.Context().Value(nodeKey{}) != nil
	switch {
	case node < 1 || node > 1023 || prefix != "/node/"+r.PathValue("node") || nested:
		s.fail(w, s.newRequest(r, nil), noPage(r))
	case r.URL.Path == prefix:
		http.Redirect(w, r, s.cfg.BasePath+prefix+"/", http.StatusPermanentRedirect)
	default:
		r = r.WithContext(context.WithValue(r.Context(), nodeKey{}, node))
		http.StripPrefix(prefix, s.mux).ServeHTTP(w, r)
	}
}

// askNodes bounds the time for which a page waits for the list of nodes, which this relay has in memory.
const askNodes = time.Second

// nodes links to the consoles of all nodes of the cluster, and to this page there if it shows no single thing.
func (s *Server) nodes(r *request) (all []menuItem) {
	ctx, cancel := context.WithTimeout(api.AtNode(r.ctx, 0), askNodes)
	defer cancel()
	c, err := api.OpCluster.Call(ctx, r.relay, api.None{})
	if err != nil || !c.On {
		return nil
	}
	path := "/"
	if r.route.menu {
		path = r.route.path
	}
	for _, m := range c.Members {
		if m.Forgotten {
			continue
		}
		item := menuItem{s.cfg.BasePath + nodePath(m.Node) + path, fmt.Sprintf("Node %d", m.Node),
			m.Node == cmp.Or(r.node, c.Node)}
		if m.Node == c.Node {
			item.URL = s.cfg.BasePath + path
		}
		all = append(all, item)
	}
	return all
}
