package compat

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// rows gives each field of a table that has a value as the manual has it: its name and its use.
func rows(fields []field, path string) (all []string) {
	for _, f := range fields {
		if len(f.in) > 0 {
			all = append(all, rows(f.in, path+f.name+".")...)
			continue
		}
		all = append(all, path+f.name+" "+f.use.String())
	}
	return all
}

// TestTheManualHasEachField: the lists of docs/http-compat.md have the fields of the code, in their order.
func TestTheManualHasEachField(t *testing.T) {
	page, err := os.ReadFile("../../../docs/http-compat.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^- `([a-z][a-zA-Z_.`, ]+)`(?: \\((ignored|refused)\\))?(?::|$)")
	for service, fields := range map[string][]field{"SendGrid": sendGridFields, "Resend": resendFields} {
		_, section, found := strings.Cut(string(page), "\n## "+service+"\n")
		if !found {
			t.Fatalf("the manual has no section %s", service)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		var listed []string
		for _, m := range row.FindAllStringSubmatch(section, -1) {
			for name := range strings.SplitSeq(m[1], "`, `") {
				listed = append(listed, name+" "+cmp.Or(m[2], "done"))
			}
		}
		if want := rows(fields, ""); !slices.Equal(listed, want) {
			t.Errorf("%s: the manual has\n%s\nthe code has\n%s", service, strings.Join(listed, "\n"), strings.Join(want, "\n"))
		}
	}
}

// TestARefusalHasARemedy: an error without one helps nobody.
func TestARefusalHasARemedy(t *testing.T) {
	var check func(fields []field, path string)
	check = func(fields []field, path string) {
		for _, f := range fields {
			if (f.use == refused) != (f.remedy != "") {
				t.Errorf("%s%s is %v, with the remedy %q", path, f.name, f.use, f.remedy)
			}
			check(f.in, path+f.name+".")
		}
	}
	check(sendGridFields, "")
	check(resendFields, "")
}
