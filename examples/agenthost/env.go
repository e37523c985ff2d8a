package main

import (
	"maps"
	"slices"
	"strings"
)

// inherited names what a server gets to see of the host's environment: what
// programs need to run at all. Everything else stays with the host, which holds
// the keys of its model; what a server needs beyond it stands in its "env".
var inherited = []string{
	"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
	// Windows programs do not start, or find no home, without these.
	"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP",
	"USERNAME", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA",
	"PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "COMMONPROGRAMFILES",
	"NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
}

// childEnv returns the complete environment of a server: the inherited names
// that the host has, and over them the configured ones. It is never nil, which
// would mean to inherit everything. With foldCase, as on Windows, names that
// differ in case alone are the same.
func childEnv(host []string, configured map[string]string, foldCase bool) []string {
	same := func(name string) string { return name }
	if foldCase {
		same = strings.ToUpper
	}
	entries := make(map[string]string) // by the name as it is compared
	for _, entry := range host {
		name, _, ok := strings.Cut(entry, "=")
		if ok && slices.Contains(inherited, same(name)) {
			entries[same(name)] = entry
		}
	}
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		entries[same(name)] = name + "=" + configured[name]
	}
	// Sorted, so that a server is started with the same environment each time.
	env := make([]string, 0, len(entries))
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		env = append(env, entries[name])
	}
	return env
}
