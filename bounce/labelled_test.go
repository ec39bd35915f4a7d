package bounce

import (
	"bufio"
	"hash/fnv"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.org/mta/internal/reply"
)

// labelled is a line of testdata/labelled.txt: the first of the classes is the label, others are as good.
type labelled struct {
	classes []Class
	reply.Reply
}

func (l *labelled) hard() bool { return l.Permanent() && l.classes[0].Hard() }

// commands are those of testdata/labelled.txt.
var commands = map[string]string{"R": "RCPT", "C": "content", "D": "DATA", "M": "MAIL", "G": "greeting", "E": "EHLO"}

// continued is what parts the lines of a reply: the code and the status are on each.
var continued = regexp.MustCompile(` / (\d{3}[- ]([245]\.\d+\.\d+ +)?)?`)

// labelledReplies returns the half that rules were tuned on, and the one that was measured only afterwards.
func labelledReplies(t *testing.T) (tuned, unseen []labelled) {
	f, err := os.Open("testdata/labelled.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var group string
	for in := bufio.NewScanner(f); in.Scan(); {
		line := in.Text()
		if name, ok := strings.CutPrefix(line, "== "); ok {
			group = name
		}
		if line == "" || line[0] == '#' || line[0] == '=' {
			continue
		}
		label, rest, _ := strings.Cut(line, " ")
		command, text, _ := strings.Cut(rest, " ")
		l := labelled{Reply: reply.Parse(continued.ReplaceAllString(text, "\n"))}
		l.Command = commands[command]
		if l.Command == "" || l.Code < 400 {
			t.Fatalf("not a labelled reply: %q", line)
		}
		for name := range strings.SplitSeq(label, ",") {
			class, err := ParseClass(name)
			if err != nil {
				t.Fatal(err)
			}
			l.classes = append(l.classes, class)
		}
		sum := fnv.New32a()
		sum.Write([]byte(text))
		if later := strings.HasPrefix(group, "unseen"); later || sum.Sum32()>>7&1 == 1 && !strings.HasPrefix(group, "tuned") {
			unseen = append(unseen, l)
		} else {
			tuned = append(tuned, l)
		}
	}
	return tuned, unseen
}

// accuracy is how far classes agree with labels. precision and recall are of what is hard, which a class is that
// stops mail to an address.
type accuracy struct{ precision, recall, wrong float64 }

func measure(t *testing.T, all []labelled) accuracy {
	var hard, found, right, wrong float64
	for i := range all {
		l := &all[i]
		got := Of(l.Reply)
		said := l.Permanent() && got.Hard()
		if l.hard() {
			hard++
		}
		if said {
			found++
		}
		if said && l.hard() {
			right++
		}
		if !slices.Contains(l.classes, got) {
			wrong++
		}
		if said != l.hard() || !slices.Contains(l.classes, got) {
			t.Logf("%v, want %v: %s: %s", got, l.classes, l.Command, l.String())
		}
	}
	a := accuracy{right / found, right / hard, wrong / float64(len(all))}
	t.Logf("%d replies, %v hard: precision %.3f, recall %.3f, class wrong %.3f", len(all), hard, a.precision, a.recall, a.wrong)
	return a
}

func TestLabelledReplies(t *testing.T) {
	tuned, unseen := labelledReplies(t)
	for i, half := range [][]labelled{tuned, unseen} {
		t.Run([]string{"tuned", "unseen"}[i], func(t *testing.T) {
			if a := measure(t, half); len(half) < 250 || a.precision < 0.98 || a.recall < 0.9 || a.wrong > 0.08 {
				t.Errorf("%d replies: %+v", len(half), a)
			}
		})
	}
}
