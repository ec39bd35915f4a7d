// Package everywhere asks all nodes of a cluster by the client of one of them, and merges their answers.
package everywhere

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// Nodes returns the members of the relay's cluster, in ascending order; an error when it is in none.
func Nodes(ctx context.Context, client *api.Client) (all []int, err error) {
	c, err := api.OpCluster.Call(ctx, client, api.None{})
	switch {
	case err != nil:
		return nil, err
	case !c.On:
		return nil, &api.Error{Message: "this relay is in no cluster: its configuration has no cluster block",
			Hint: "leave out --cluster"}
	}
	for _, m := range c.Members {
		if !m.Forgotten {
			all = append(all, m.Node)
		}
	}
	if len(all) == 0 {
		return nil, &api.Error{Message: "the members of the cluster are not known: the database has not answered yet",
			Hint: "'mta cluster status' has the reason"}
	}
	return all, nil
}

// Failure is a node without an answer.
type Failure struct {
	Node int
	Err  error
}

// MarshalJSON writes the node and the text of its error.
func (f Failure) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"node": f.Node, "error": f.text()})
}

// text is the error without the name of the node before it.
func (f Failure) text() string {
	return strings.TrimPrefix(f.Err.Error(), fmt.Sprintf("node %d: ", f.Node))
}

func (f Failure) Error() string {
	if text := f.text(); !strings.HasPrefix(text, fmt.Sprintf("node %d ", f.Node)) {
		return fmt.Sprintf("node %d: %s", f.Node, text)
	}
	return f.text()
}

// Unwrap gives the error of the node.
func (f Failure) Unwrap() error { return f.Err }

// Failures are the nodes without an answer, by their numbers.
type Failures []Failure

func (f Failures) Error() string {
	var lines []string
	for _, one := range f {
		lines = append(lines, one.Error())
	}
	return strings.Join(lines, "\n")
}

// Same returns the error that all nodes have given, if all have given the same one.
func (f Failures) Same(nodes int) error {
	for _, one := range f {
		if one.text() != f[0].text() {
			return nil
		}
	}
	if len(f) == 0 || len(f) < nodes {
		return nil
	}
	return f[0].Err
}

// Row is a row of a node's listing, or another answer of it.
type Row[T any] struct {
	Node   int
	Value  *T
	Failed Failures // nodes that could have it, too
}

// MarshalJSON writes the fields of the value behind the node and those that have failed.
func (r Row[T]) MarshalJSON() ([]byte, error) {
	text, err := json.Marshal(r.Value)
	if err != nil || len(text) < 2 || text[0] != '{' {
		return text, errors.Join(err, fmt.Errorf("%T has no fields", r.Value))
	}
	head := fmt.Sprintf(`{"node":%d`, r.Node)
	if len(r.Failed) > 0 {
		failed, _ := json.Marshal(r.Failed) // numbers and texts
		head += fmt.Sprintf(`,"failed":%s`, failed)
	}
	if len(text) > len("{}") {
		head += ","
	}
	return append([]byte(head), text[1:]...), nil
}

// Listing puts the node before the columns of a listing.
func Listing[T any](l listing.Listing[T]) listing.Listing[Row[T]] {
	out := listing.Listing[Row[T]]{Name: l.Name, Noun: l.Noun, Empty: l.Empty, NoteTitle: l.NoteTitle, Rest: l.Rest,
		Note: func(r *Row[T], look listing.Look) string { return l.Note(r.Value, look) },
		Key:  func(r *Row[T]) string { return fmt.Sprintf("%d %s", r.Node, l.Key(r.Value)) },
		Columns: []listing.Column[Row[T]]{{Title: "NODE", Right: true,
			Cell: func(r *Row[T]) listing.Cell { return listing.Count(r.Node) }}}}
	for _, c := range l.Columns {
		out.Columns = append(out.Columns, listing.Column[Row[T]]{Title: c.Title, Right: c.Right, Shrink: c.Shrink,
			Spare: c.Spare, In: c.In, At: func(r *Row[T], look listing.Look) listing.Cell {
				if c.At != nil {
					return c.At(r.Value, look)
				}
				return c.Cell(r.Value)
			}})
	}
	return out
}

// Ask asks nodes at the same time, each in a context that has it answer what is asked of the client. Answers and
// failures are in the order of the nodes.
func Ask[A any](ctx context.Context, nodes []int, ask func(ctx context.Context, node int) (A, error)) (
	answers []Row[A], failed Failures) {
	all, errs := make([]A, len(nodes)), make([]error, len(nodes))
	var asked sync.WaitGroup
	for i, n := range nodes {
		asked.Go(func() { all[i], errs[i] = ask(api.AtNode(ctx, n), n) })
	}
	asked.Wait()
	for i, n := range nodes {
		if errs[i] != nil {
			failed = append(failed, Failure{n, errs[i]})
		} else {
			answers = append(answers, Row[A]{Node: n, Value: &all[i]})
		}
	}
	return answers, failed
}

// First returns the answer of the node that has what is asked for. It is not found when all nodes have answered so, and
// an error if two have it; other failures are errors when no node has it.
func First[A any](ctx context.Context, nodes []int, what string, ask func(ctx context.Context) (A, error)) (
	row Row[A], err error) {
	answers, failed := Ask(ctx, nodes, func(ctx context.Context, _ int) (A, error) { return ask(ctx) })
	var unknown error
	var silent Failures
	for _, f := range failed {
		if api.IsNotFound(f.Err) {
			unknown = f.Err
		} else {
			silent = append(silent, f)
		}
	}
	same := silent.Same(len(nodes))
	switch {
	case len(answers) > 1:
		return row, Two(what, answers[0].Node, answers[1].Node)
	case len(answers) == 1:
		answers[0].Failed = silent
		return answers[0], nil
	case len(silent) == 0:
		return row, unknown
	case same != nil:
		return row, same
	case unknown != nil:
		return row, fmt.Errorf("%w at the other nodes\n%w", unknown, silent)
	}
	return row, silent
}

// Two is the error of what two nodes have: ids that they made before they joined can be the same.
func Two(what string, a, b int) error {
	return &api.Error{Status: http.StatusConflict, Message: fmt.Sprintf("%s is at node %d and at node %d", what, a, b),
		Hint: "run the command at the one that you mean, without --cluster"}
}
