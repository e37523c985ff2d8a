package main

import (
	"slices"
	"testing"
)

func TestChildEnv(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		host       []string
		configured map[string]string
		foldCase   bool
		want       []string
	}{
		"only what is on the list": {
			host: []string{"PATH=/bin", "API_KEY=secret", "HOME=/h"},
			want: []string{"HOME=/h", "PATH=/bin"},
		},
		"the configured wins": {
			host:       []string{"PATH=/bin", "LANG=C"},
			configured: map[string]string{"PATH": "/opt/bin", "API_KEY": "mine"},
			want:       []string{"API_KEY=mine", "LANG=C", "PATH=/opt/bin"},
		},
		"an empty value is a value": {
			host:       []string{"LANG="},
			configured: map[string]string{"EMPTY": ""},
			want:       []string{"EMPTY=", "LANG="},
		},
		"case counts": {
			host:       []string{"Path=/other", "PATH=/bin"},
			configured: map[string]string{"path": "mine"},
			want:       []string{"PATH=/bin", "path=mine"},
		},
		"case does not count on Windows": {
			host:       []string{`=C:=C:\work`, "Path=/bin", "SystemRoot=w"},
			configured: map[string]string{"PATH": "mine"},
			foldCase:   true,
			want:       []string{"PATH=mine", "SystemRoot=w"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := childEnv(test.host, test.configured, test.foldCase); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A nil environment would hand everything on.
func TestChildEnvIsNeverNil(t *testing.T) {
	t.Parallel()
	if env := childEnv([]string{"API_KEY=secret"}, nil, false); env == nil || len(env) != 0 {
		t.Errorf("got %#v, want an empty environment that is not nil", env)
	}
}
