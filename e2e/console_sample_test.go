package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"

	"example.org/mta/mta/relaytest"
	"example.org/mta/operator/api"
	"example.org/mta/operator/web"
)

var (
	updateTrees = flag.Bool("console.update", false, "write the accessibility trees of the console anew")
	pictures    = flag.String("console.pictures", "", "take the pictures of the manual into this `folder`")
)

// sampleConsole serves the console of the sample relay, which is the same each time, at a fixed hour.
func sampleConsole(t *testing.T) (home, ticket string) {
	t.Helper()
	relay := relaytest.Serve(t, func(t *testing.T) *relaytest.Sample { return relaytest.NewSample(t, "", nil) })
	t.Cleanup(relay.Close)
	server, err := web.New(web.Config{Relay: api.NewLocalClient(relay), Now: func() time.Time { return relaytest.Now }})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		l.Close()
		<-served
	})
	home = "http://" + l.Addr().String()
	return home, home + server.Ticket(web.Identity{User: "ada", Role: web.Admin})
}

// TestConsoleAccessibilityTrees: what assistive technology gets of each page, roles and names, is what
// testdata/console has. -console.update writes it anew.
func TestConsoleAccessibilityTrees(t *testing.T) {
	parallel(t)
	home, ticket := sampleConsole(t)
	b := newBrowser(t, strings.TrimPrefix(home, "http://"))
	if status := b.open(ticket); status != 200 {
		t.Fatalf("the link answers %d", status)
	}
	b.theme("light")
	var written []string
	eachKind(b, home, func(page, kind string) {
		tree := b.tree()
		file := filepath.Join("testdata", "console", treeFile(kind))
		written = append(written, filepath.Base(file))
		if *updateTrees {
			writeFile(t, file, tree)
			return
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v; to write it: go test ./e2e -run %s -console.update", err, t.Name())
		}
		if tree != string(want) {
			t.Errorf("%s: the accessibility tree has changed; if that is meant: go test ./e2e -run %s -console.update\n%s", page, t.Name(), lineDiff(string(want), tree))
		}
	})
	old, err := os.ReadDir("testdata/console")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range old {
		if !slices.Contains(written, f.Name()) {
			t.Errorf("testdata/console/%s is of no page", f.Name())
		}
	}
}

// eachKind opens a page of each kind that links lead to, from the overview on.
func eachKind(b *browser, home string, look func(page, kind string)) {
	b.t.Helper()
	pages, seen := []string{home + "/", home + "/warm-ups/simulate?plan=standard&volume=600&shape=even"}, map[string]bool{"/?": true, "/warm-ups/simulate?plan&shape&volume": true}
	for i := 0; i < len(pages) && i < maxPages; i++ {
		u, err := url.Parse(pages[i])
		if err != nil {
			b.t.Fatal(err)
		}
		if status := b.open(pages[i]); status != 200 {
			b.t.Errorf("%s: %d", pages[i], status)
		}
		look(pages[i], kind(u))
		pages = append(pages, b.links(home, seen)...)
	}
}

// treeFile names the file of a kind of page.
func treeFile(kind string) string {
	path, query, _ := strings.Cut(kind, "?")
	name := strings.Trim(strings.NewReplacer("/", "-", "*", "ID").Replace(path), "-")
	if name == "" {
		name = "overview"
	}
	if query != "" {
		name += "_" + strings.ReplaceAll(query, "&", "_")
	}
	return name + ".txt"
}

// passed are roles that say nothing about how to use a page: layout, and the figures and texts of the field.
var passed = []string{"none", "generic", "InlineTextBox", "StaticText", "LineBreak", "row", "rowgroup", "cell", "gridcell", "rowheader", "paragraph", "listitem", "ListMarker", "term", "definition",
	"strong", "emphasis", "code", "time", "Abbr", "LayoutTable", "LayoutTableRow", "LayoutTableCell", "LabelText", "DescriptionList", "DescriptionListTerm", "DescriptionListDetail", "MenuListPopup", "subscript", "superscript"}

// tree gives the accessibility tree of the page: a line for each role with its name, within that of its parent. Lines
// that are the same as the one before are counted.
func (b *browser) tree() string {
	b.t.Helper()
	ctx, cancel := b.within()
	defer cancel()
	got, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	nodes := map[accessibility.NodeID]*accessibility.Node{}
	for _, n := range got.Nodes {
		nodes[n.NodeID] = n
	}
	var lines []string
	var walk func(n *accessibility.Node, depth int)
	walk = func(n *accessibility.Node, depth int) {
		if role := axText(n.Role); !n.Ignored && !slices.Contains(passed, role) {
			lines = append(lines, strings.TrimRight(strings.Repeat("  ", depth)+role+" "+axText(n.Name), " "))
			depth++
		}
		for _, id := range n.ChildIDs {
			if child := nodes[id]; child != nil {
				walk(child, depth)
			}
		}
	}
	if len(got.Nodes) > 0 {
		walk(got.Nodes[0], 0)
	}
	return strings.Join(slices.Compact(lines), "\n") + "\n"
}

// axText gives a text of the tree on one line.
func axText(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var text string
	if json.Unmarshal(v.Value, &text) != nil {
		return string(v.Value)
	}
	return strings.Join(strings.Fields(text), " ")
}

// lineDiff gives the lines that only one of two texts has.
func lineDiff(want, got string) string {
	var out strings.Builder
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, l := range a {
		if !slices.Contains(b, l) {
			fmt.Fprintf(&out, "- %s\n", l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			fmt.Fprintf(&out, "+ %s\n", l)
		}
	}
	if out.Len() == 0 {
		return "the same lines in another order or number"
	}
	return out.String()
}

// manualPictures are the pictures of the manual: page, theme and height.
var manualPictures = []struct {
	name, page, theme string
	height            int64
}{
	{"overview", "/", "light", 860},
	{"overview-dark", "/", "dark", 860},
	{"queue", "/queue", "light", 560},
	{"summary", "/queue/summary?by=tenant", "dark", 420},
	{"site", "/site?name=mx.grey.example", "light", 860},
	{"warm-up", "/warm-up?source=acme-1", "light", 900},
	{"sources", "/sources", "light", 480},
}

// maxPicture bounds a picture of the manual, in octets.
const maxPicture = 60_000

// TestConsolePictures takes the pictures of the manual, for 'make pictures'.
func TestConsolePictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("takes pictures with -console.pictures; 'make pictures' sets it")
	}
	home, ticket := sampleConsole(t)
	b := newBrowser(t, strings.TrimPrefix(home, "http://"))
	b.open(ticket)
	for _, p := range manualPictures {
		b.do(chromedp.EmulateViewport(1240, p.height))
		b.theme(p.theme)
		b.open(home + p.page)
		ctx, cancel := b.within()
		shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		small := fewColours(t, shot)
		if len(small) > maxPicture {
			t.Errorf("%s has %d octets", p.name, len(small))
		}
		writeFile(t, filepath.Join(*pictures, "console-"+p.name+".png"), string(small))
		t.Logf("%s: %d octets", p.name, len(small))
	}
	b.sound("pictures")
}

// fewColours writes a picture with the 64 colours that it has most of: a third of the octets, and the eye sees no
// difference in a page of text.
func fewColours(t *testing.T, shot []byte) []byte {
	t.Helper()
	full, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	count := map[color.RGBA]int{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			count[color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)]++
		}
	}
	all := make([]color.RGBA, 0, len(count))
	for c := range count {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int {
		if d := count[b] - count[a]; d != 0 {
			return d
		}
		return bytes.Compare([]byte{a.R, a.G, a.B}, []byte{b.R, b.G, b.B})
	})
	var palette color.Palette
	for _, c := range all[:min(64, len(all))] {
		palette = append(palette, c)
	}
	few := image.NewPaletted(full.Bounds(), palette)
	draw.Draw(few, few.Bounds(), full, full.Bounds().Min, draw.Src)
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, few); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
