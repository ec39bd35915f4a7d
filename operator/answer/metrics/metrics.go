// Package metrics shows the figures of the relay's parts to Prometheus. It reads the parts' own counters when
// Prometheus asks, so that counting costs mail nothing. Each metric is a row of a table: see tables.txt. Histograms,
// which nothing but Prometheus needs, are in package tally.
package metrics

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// row is a metric: see tables.txt.
type row struct{ name, value, help string }

//go:embed tables.txt
var text string

// tables are the rows by the part that has their figures.
var tables = sync.OnceValue(func() map[string][]row {
	all, part := make(map[string][]row), ""
	for line := range strings.Lines(text) {
		switch line = strings.TrimSpace(line); {
		case line == "", line[0] == '#':
		case line[0] == '[':
			part = strings.Trim(line, "[]")
		default:
			name, rest, _ := strings.Cut(line, "|")
			value, help, _ := strings.Cut(rest, "|")
			all[part] = append(all[part],
				row{strings.TrimSpace(name), strings.TrimSpace(value), strings.TrimSpace(help)})
		}
	}
	return all
})

// labels splits a row's name.
func (r row) labels() (name string, labels []string) {
	name, rest, found := strings.Cut(r.name, "{")
	if found {
		labels = strings.Split(strings.TrimSuffix(rest, "}"), ",")
	}
	return name, labels
}

// Names returns the labels of each metric by its name.
func Names() map[string][]string {
	all := map[string][]string{omittedName: nil}
	for _, rows := range tables() {
		for _, r := range rows {
			name, labels := r.labels()
			all[name] = labels
		}
	}
	return all
}

// collector collects the metrics of some tables.
type collector struct {
	descs   []*prometheus.Desc
	collect collect
}

// collect sends all metrics of a collector.
type collect func(chan<- prometheus.Metric)

// metric is a row that is ready to be read.
type metric struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	values []value
}

// value is a way to a number in the figures of a part.
type value struct {
	labels []string // the last label, if it goes with the value
	fields [][]int  // indexes of the fields that are added up; none: the figures are the number
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) { c.collect(ch) }

// sender sends the metrics of a table for figures and their labels.
type sender[T any] func(ch chan<- prometheus.Metric, figures T, labels ...string)

// add adds a table to a collector, and returns its sender. It panics if the table and the figures don't fit.
func add[T any](c *collector, part string) sender[T] {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	var metrics []metric
	for _, r := range tables()[part] {
		m := r.ready(t)
		metrics, c.descs = append(metrics, m), append(c.descs, m.desc)
	}
	if len(metrics) == 0 {
		panic("metrics: there is no table of " + part)
	}
	return func(ch chan<- prometheus.Metric, figures T, labels ...string) {
		v := reflect.Indirect(reflect.ValueOf(figures))
		for i := range metrics {
			m := &metrics[i]
			for _, w := range m.values {
				ch <- prometheus.MustNewConstMetric(m.desc, m.kind, w.read(v), slices.Concat(labels, w.labels)...)
			}
		}
	}
}

// Of returns the collector of a part's figures.
func Of[T any](part string, of func() T) prometheus.Collector {
	return If(part, func() (T, bool) { return of(), true })
}

// If returns the collector of the figures of a part that may be off.
func If[T any](part string, of func() (T, bool)) prometheus.Collector {
	c := new(collector)
	send := add[T](c, part)
	c.collect = func(ch chan<- prometheus.Metric) {
		if v, on := of(); on {
			send(ch, v)
		}
	}
	return c
}

// IfThere returns the collector of the figures of a part that may be nil.
func IfThere[P interface {
	comparable
	Stats() T
}, T any](part string, of func() P) prometheus.Collector {
	return If(part, func() (figures T, there bool) {
		var none P
		if p := of(); p != none {
			return p.Stats(), true
		}
		return figures, false
	})
}

// By returns the collector of figures by their only label.
func By[T any](part string, of func() map[string]T) prometheus.Collector {
	c := new(collector)
	send := add[T](c, part)
	c.collect = func(ch chan<- prometheus.Metric) {
		for label, v := range of() {
			send(ch, v, label)
		}
	}
	return c
}

func (w *value) read(v reflect.Value) (sum float64) {
	if len(w.fields) == 0 {
		return number(v)
	}
	for _, f := range w.fields {
		sum += number(v.FieldByIndex(f))
	}
	return sum
}

// number is a figure as Prometheus has it: 1 for true, seconds for times. It may be atomic.
func number(v reflect.Value) float64 {
	switch x := v.Interface().(type) {
	case time.Duration:
		return x.Seconds()
	case time.Time:
		return float64(x.Unix())
	}
	if v.CanAddr() {
		if x, ok := v.Addr().Interface().(interface{ Load() int64 }); ok {
			return float64(x.Load())
		}
	}
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	case v.Kind() != reflect.Bool:
		panic(fmt.Sprintf("metrics: %v is not a number", v.Type()))
	case v.Bool():
		return 1
	}
	return 0
}

// ready finds the fields of a row in the type of the figures.
func (r row) ready(t reflect.Type) metric {
	name, labels := r.labels()
	m := metric{desc: prometheus.NewDesc(name, r.help, labels, nil), kind: prometheus.GaugeValue}
	if strings.HasSuffix(name, "_total") {
		m.kind = prometheus.CounterValue
	}
	if !strings.Contains(r.value, "=") {
		m.values = []value{{fields: fields(t, r.value)}}
		return m
	}
	for pair := range strings.FieldsSeq(r.value) {
		label, names, _ := strings.Cut(pair, "=")
		m.values = append(m.values, value{[]string{label}, fields(t, names)})
	}
	return m
}

// fields returns the indexes of some fields of a type, "Now.Level+Now.Part".
func fields(t reflect.Type, names string) (all [][]int) {
	if names == "" {
		number(reflect.New(t).Elem())
		return nil
	}
	for name := range strings.SplitSeq(names, "+") {
		var index []int
		at := t
		for part := range strings.SplitSeq(name, ".") {
			f, ok := at.FieldByName(part)
			if !ok {
				panic(fmt.Sprintf("metrics: %v has no field %s", t, name))
			}
			index, at = append(index, f.Index...), f.Type
		}
		number(reflect.New(at).Elem())
		all = append(all, index)
	}
	return all
}
