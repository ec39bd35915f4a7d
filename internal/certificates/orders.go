package certificates

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"sync"
)

// orders gives the answer to the end of an order the order's URL, where an authority leaves it out. RFC 8555
// (7.4) does not demand it, and package acme asks there how the order goes on.
type orders struct {
	next http.RoundTripper

	mu  sync.Mutex        // guards url
	url map[string]string // of an order, by the URL that ends it
}

// maxOrder is more than an order has, in octets.
const maxOrder = 1 << 20

func (o *orders) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := o.next.RoundTrip(req)
	if err != nil || req.Method != http.MethodPost {
		return res, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := res.Header.Get("Location")
	if at == "" {
		if at = o.url[req.URL.String()]; at != "" {
			res.Header.Set("Location", at)
		}
		return res, nil
	}
	if res.StatusCode != http.StatusCreated {
		return res, nil
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxOrder))
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	var order struct {
		Finalize string `json:"finalize"`
	}
	if json.Unmarshal(text, &order) == nil && order.Finalize != "" { // else it is an account
		if o.url == nil || len(o.url) > 100 {
			o.url = make(map[string]string)
		}
		o.url[order.Finalize] = at
	}
	return res, nil
}
