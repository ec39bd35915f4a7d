package report

import "testing"

func TestWhateverComesIsRead(t *testing.T) {
	for _, content := range []string{"", "\x00", "\r\n", "no header at all", "Content-Type: multipart/report; boundary=x\n\n--x"} {
		if r := Read([]byte(content), Options{}); r.Kind != Other || len(r.Reports) != 0 {
			t.Errorf("%q: %+v", content, r)
		}
	}
}
