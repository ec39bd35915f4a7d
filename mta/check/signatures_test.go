package check

import (
	"fmt"
	"strings"
	"testing"
)

// dkimBlock is a dkim block with a key (RFC 8463, A.2).
func dkimBlock(domain, more string) string {
	const key = "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A="
	return fmt.Sprintf("dkim %q {\n domain = %q\n %s\n key \"s\" { private_key = %q }\n}\n", domain, domain, more, key)
}

func TestTLSReportsWantASignature(t *testing.T) {
	const on = "tls_reports { from = \"tls-reports@client.example\" }\n"
	for text, want := range map[string]int{"": 0, on: 1, on + dkimBlock("client.example", ""): 0} {
		got := tlsReportWarnings(parsed(t, "hostname = \"relay.example\"\n"+text))
		if len(got) != want || want > 0 && !strings.Contains(got[0], "no dkim block signs mail from client.example") {
			t.Errorf("warnings: %q, want %d", got, want)
		}
	}
}
