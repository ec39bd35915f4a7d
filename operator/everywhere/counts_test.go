package everywhere

import (
	"reflect"
	"testing"

	"example.org/mta/operator/api"
)

// TestCounts: the counts of nodes are added up, replies that differ in numbers are one, and what a node has left out makes
// the sums inexact.
func TestCounts(t *testing.T) {
	reply := func(code int, text string) *api.Reply { return &api.Reply{Code: code, Enhanced: "5.1.1", Text: text} }
	nodes := []Row[api.LogCounts]{
		{Node: 1, Value: &api.LogCounts{By: "reply", Records: 10, Exact: true, Looked: 5, Groups: []api.LogCount{
			{Name: "InvalidRecipient", Count: 6, Reply: reply(550, "no such user 2")},
			{Name: "SpamBlock", Count: 4, Reply: reply(550, "blocked")}}}},
		{Node: 2, Value: &api.LogCounts{By: "reply", Records: 20, Exact: true, Looked: 7, Damaged: "records are missing", Groups: []api.LogCount{
			{Name: "SpamBlock", Count: 15, Reply: reply(550, "blocked")},
			{Name: "InvalidRecipient", Count: 3, Reply: reply(550, "no such user 1")},
			{Name: "InvalidRecipient", Count: 2, Reply: reply(550, "mailbox is gone")}}}},
	}
	got := Counts(nodes, 2)
	want := api.LogCounts{By: "reply", Records: 30, Exact: true, Looked: 12, Others: 2, Left: 1, Damaged: "node 2: records are missing", Groups: []api.LogCount{
		{Name: "SpamBlock", Count: 19, Share: 19.0 / 30, Reply: reply(550, "blocked")},
		{Name: "InvalidRecipient", Count: 9, Share: 0.3, Reply: reply(550, "no such user 1")}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	nodes[1].Value.Others, nodes[1].Value.Left = 5, 3
	if got := Counts(nodes, 10); got.Exact || got.Others != 5 || got.Left != 3 || len(got.Groups) != 3 {
		t.Errorf("with groups that a node has left out: %+v", got)
	}
	if got := Counts(nil, 10); got.Groups == nil || got.Records != 0 {
		t.Errorf("%+v", got)
	}
}
