package request

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

var usualLimits = TreeLimits{Depth: 64, Values: 1000}

func TestFaultsNameTheirPlace(t *testing.T) {
	many := func(n int) string { return `[` + strings.Repeat("1,", n-1) + `1]` }
	for doc, want := range map[string]Fault{
		``:                                 {"", "line 1, column 1: the document ends early", ""},
		`{"a": [1, 2`:                      {"/a", "line 1, column 12: the document ends early", ""},
		"{\n \"a\": [1, x]}":               {"/a/1", "line 2, column 11: invalid character 'x'", ""},
		`{"a":1} {"b":2}`:                  {"", "there is more data after the end", ""},
		`{"a":1}x`:                         {"", "column 8: invalid character 'x'", ""},
		`{"a":"` + "\xff" + `"}`:           {"/a", "column 7: invalid UTF-8", ""},
		`{"a":"\ud800"}`:                   {"/a", `invalid surrogate pair`, ""},
		`{"` + "\xff" + `":1}`:             {"", "invalid UTF-8", ""},
		"{\"a\":\"b\nc\"}":                 {"/a", `invalid character '\n'`, ""},
		`{"a":{"b~/c":[0,{"d":1,"d":2}]}}`: {"/a/b~0~1c/1/d", "twice", ""},
		`{"a":1,"\u0061":2}`:               {"/a", "twice", ""},
		`{"a":01}`:                         {"", "invalid character '1'", ""},
		`{'a':1}`:                          {"", `invalid character '\''`, ""},
		`{"a":1,}`:                         {"", "invalid character ','", ""},
		strings.Repeat("[", 10000):         {strings.Repeat("/0", 63), "deeper than 64 levels", ""},
		strings.Repeat(`{"a":`, 10000):     {strings.Repeat("/a", 64), "deeper than 64 levels", ""},
		many(1000):                         {"/998", "more than 1000 values", ""},
		`{"` + strings.Repeat("n", 1<<20) + `":1,"` + strings.Repeat("n", 1<<20) + `":2}`: {"", "twice", ""},
	} {
		_, faults := ParseTree([]byte(doc), usualLimits)
		if len(faults) != 1 || faults[0].Pointer != want.Pointer || !strings.Contains(faults[0].Detail, want.Detail) {
			t.Errorf("%.40q: %.300q, want %.300q", doc, faults, want)
		}
	}
}

func TestDuplicatesAreAllFound(t *testing.T) {
	doc := `{"a":1,"a":2,"b":{"c":1,"c":2}`
	for i := range 30 {
		doc += `,"x` + string(rune('0'+i)) + `":0`
	}
	root, faults := ParseTree([]byte(doc+`,"x0":1}`), usualLimits)
	if len(faults) != 3 || faults[0].Pointer != "/a" || faults[1].Pointer != "/b/c" || faults[2].Pointer != "/x0" || root.Get("a").Text() != "1" {
		t.Errorf("%+v", faults)
	}
	if _, faults = ParseTree([]byte("{"+strings.Repeat(`"a":1,`, 900)+`"a":1}`), usualLimits); len(faults) != maxTreeFaults {
		t.Errorf("%d faults are listed", len(faults))
	}
}

// Depth costs nothing: it is refused where it begins.
func TestDepthIsCheap(t *testing.T) {
	doc := []byte(strings.Repeat(`[`, 20<<20))
	began := time.Now()
	allocated := testing.AllocsPerRun(1, func() { ParseTree(doc, usualLimits) })
	if d := time.Since(began); allocated > 1000 || d > 10*time.Second {
		t.Errorf("%v allocations in %v", allocated, d)
	}
}

func TestValues(t *testing.T) {
	root, faults := ParseTree([]byte(` {"s":"a\u00e9\n","n":1e2,"t":true,"f":false,"z":null,"o":{"p":[1,[],{}]}} `), usualLimits)
	want := map[string]any{"s": "aé\n", "n": json.Number("1e2"), "t": true, "f": false, "z": nil,
		"o": map[string]any{"p": []any{json.Number("1"), []any{}, map[string]any{}}}}
	if faults != nil || !reflect.DeepEqual(root.Any(), want) {
		t.Fatalf("%v, %v", root, faults)
	}
	if o := root.Get("o"); string(o.Raw()) != `{"p":[1,[],{}]}` || o.Get("p").Len != 3 || o.Get("q") != nil || root.Len != 6 {
		t.Errorf("%s", o.Raw())
	}
	places := ""
	for c := range root.Get("o").Get("p").All() {
		places += c.Pointer() + " " + c.Kind.String() + "\n"
	}
	if places != "/o/p/0 a number\n/o/p/1 an array\n/o/p/2 an object\n" {
		t.Error(places)
	}
}

// FuzzParse: what is taken, package encoding/json reads alike, and each node's octets are its value.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"a":[1,"b",{"c":null}],"d":true}`, `[[[[]]]]`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, `{"~":{"/":1}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		root, faults := ParseTree(doc, usualLimits)
		if root == nil && len(faults) == 0 {
			t.Fatal("neither a tree nor a fault")
		}
		if root == nil || len(faults) > 0 {
			return
		}
		d := json.NewDecoder(strings.NewReader(string(doc)))
		d.UseNumber()
		var want any
		if err := d.Decode(&want); err != nil || !reflect.DeepEqual(root.Any(), want) {
			t.Fatalf("%q is %v here, and %v (%v) there", doc, root.Any(), want, err)
		}
		walk(t, root)
	})
}

func walk(t *testing.T, n *Node) {
	var again any
	d := json.NewDecoder(strings.NewReader(string(n.Raw())))
	d.UseNumber()
	if err := d.Decode(&again); err != nil || !reflect.DeepEqual(again, n.Any()) {
		t.Fatalf("%s has the octets %q (%v)", n.Pointer(), n.Raw(), err)
	}
	for c := range n.All() {
		walk(t, c)
	}
}

func BenchmarkParse(b *testing.B) {
	doc := []byte(`{"from":"Shop <shop@acme.example>","to":["a@example.net"],"subject":"Your order","text":"` + strings.Repeat("word ", 400) + `","tags":["a","b"],"meta":{"order":17}}`)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, faults := ParseTree(doc, usualLimits); faults != nil {
			b.Fatal(faults)
		}
	}
}

func TestOpaque(t *testing.T) {
	root, faults := ParseTree([]byte(`{"a":[1, 2,[3]],"b":[4]}`), TreeLimits{Depth: 2, Values: 4, Opaque: func(n *Node) bool { return n.Name == "a" }})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if a := root.Get("a"); a.Kind != Array || a.Len != 0 || string(a.Raw()) != "[1, 2,[3]]" {
		t.Errorf("got %v with %d children, source %s", a.Kind, a.Len, a.Raw())
	}
	if b := root.Get("b"); b.Len != 1 {
		t.Errorf("another array has %d children, want 1", b.Len)
	}
	if _, faults = ParseTree([]byte(`{"a":[1,}`), TreeLimits{Depth: 2, Values: 4, Opaque: func(*Node) bool { return true }}); len(faults) == 0 {
		t.Error("a broken array was not noticed")
	}
}
