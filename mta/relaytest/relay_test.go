package relaytest

import (
	"encoding/json"
	"testing"

	"example.org/mta/internal/bubble"
	"example.org/mta/operator/api"
)

// TestTwiceTheSame: the sample is the same each time, in all that operators see of it.
func TestTwiceTheSame(t *testing.T) {
	var before string
	for range 2 {
		bubble.Test(t, func(t *testing.T) {
			c := NewSample(t, "", nil).Client()
			var all []any
			for _, ask := range []func() (any, error){
				func() (any, error) { return api.OpList.Call(t.Context(), c, api.ListQuery{Page: api.Page{Limit: 100}}) },
				func() (any, error) {
					return api.OpSites.Call(t.Context(), c, api.SiteFilter{Paging: api.Paging{Limit: 100}})
				},
				func() (any, error) {
					return api.OpHosts.Call(t.Context(), c, api.HostFilter{Paging: api.Paging{Limit: 100}})
				},
				func() (any, error) {
					return api.OpConnections.Call(t.Context(), c, api.ConnectionFilter{Paging: api.Paging{Limit: 100}})
				},
				func() (any, error) { return api.OpWarmups.Call(t.Context(), c, api.Paging{Limit: 100}) },
				func() (any, error) { return c.NewestRecords(t.Context(), api.LogQuery{}, "", 100) },
			} {
				v, err := ask()
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, v)
			}
			text, err := json.MarshalIndent(all, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			if before != "" && before != string(text) {
				t.Errorf("another time it is\n%s\nbefore:\n%s", text, before)
			}
			before = string(text)
		})
	}
}
