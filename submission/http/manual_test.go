package http

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"example.org/mta/submission/request"
)

// manual is the page about this package.
func manual(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestManualHasEachField: of a request, of its recipients and attachments.
func TestManualHasEachField(t *testing.T) {
	names := request.FieldNames()
	lists := regexp.MustCompile("(?m)^- ((?:`[a-z_]+`(?:, )?)+)(?: \\(|:)").FindAllStringSubmatch(manual(t), -1)
	described := map[string]bool{}
	for _, row := range lists {
		for _, name := range strings.Split(row[1], ", ") {
			described[strings.Trim(name, "`")] = true
		}
	}
	for _, list := range [][]string{names.Request, names.Recipient, names.Attachment, names.Parameters} {
		for _, name := range list {
			if !described[name] {
				t.Errorf("docs/http.md doesn't describe %s", name)
			}
		}
	}
}

// TestManualsRequestsRun sends the JSON of each curl.
func TestManualsRequestsRun(t *testing.T) {
	s := wholeServer(t)
	page := regexp.MustCompile(`'\$\(date [^)]*\)'`).ReplaceAllString(manual(t), "2026-11-23T08:00:00Z")
	commands := regexp.MustCompile(`(?s)curl http://127\.0\.0\.1:8080(/[a-z0-9/]+)[^']*?(?:-H 'Idempotency-Key: [^']*' )?--json '(.*?)'\n`).FindAllStringSubmatch(page, -1)
	if len(commands) < 5 {
		t.Errorf("docs/http.md has %d commands, too few", len(commands))
	}
	for _, c := range commands {
		body := strings.ReplaceAll(c[2], "@example.com", "@acme.example") // the sender of the tests' tenant
		w := ask(s, "POST", c[1], "good", strings.NewReader(body), "Content-Type", "application/json")
		if w.Code != http.StatusAccepted && w.Code != http.StatusOK {
			t.Errorf("%s is answered %d %s", c[0], w.Code, w.Body)
		}
	}
}

// TestManualHasTheStatuses: each refusal's, and each that the OpenAPI document has.
func TestManualHasTheStatuses(t *testing.T) {
	page := manual(t)
	for path, methods := range readDocument(t).Paths {
		for _, operation := range methods {
			for status := range operation.Responses {
				if !regexp.MustCompile(`(?m)^[|-] [0-9, ]*\b` + status + `\b`).MatchString(page) {
					t.Errorf("docs/http.md lacks the status %s of %s", status, path)
				}
			}
		}
	}
}

// TestManualHasOverloadAtItsStatus: clients learn from both descriptions which status asks them to come back with their
// token.
func TestManualHasOverloadAtItsStatus(t *testing.T) {
	s := testServer(t, func(cfg *Config) { cfg.Admission = &shedding{wait: time.Hour, now: time.Now} })
	w := ask(s, "POST", "/v1/messages", "good", strings.NewReader("{}"))
	if row := fmt.Sprintf(`(?m)^\| %d \|.*relay is \[overloaded\]`, w.Code); !regexp.MustCompile(row).MatchString(manual(t)) {
		t.Errorf("docs/http.md does not have overload at status %d", w.Code)
	}
	var d struct {
		Components struct {
			Responses map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(openAPI, &d); err != nil {
		t.Fatal(err)
	}
	if w.Code != http.StatusTooManyRequests || !strings.Contains(d.Components.Responses["TooMany"].Description, "relay is overloaded") {
		t.Errorf("openapi.json does not have overload at status %d", w.Code)
	}
}
