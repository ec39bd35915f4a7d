package everywhere

import (
	"net/http"
	"strconv"
)

// asked is a relay that notes which node it is to ask.
type asked func(node int)

func (a asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.Header.Get("Mta-Node"))
	a(n)
	w.Write([]byte("{}"))
}
