// Command puppet is an MCP stdio server that writes what a call tells it to, byte
// for byte: whatever a test can think of, a server can be made to say.
//
// Its tool "say" takes these arguments:
//
//	write  text to write; %ID in it becomes the id of the call, as it was sent
//	hex    bytes to write after it
//	chunk  how many bytes to put into one write; 0: all
//	pause  milliseconds between the writes
//	close  close stdout afterwards, and live on
//	exit   exit with this status afterwards
//
// It answers such a call in no other way. The tool "heard" returns, as a JSON
// array of strings, the lines without a method that it has read: the answers to
// what "say" asked. Any other tool returns its arguments.
package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Version   string          `json:"protocolVersion"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"params"`
}

type script struct {
	Write string `json:"write"`
	Hex   string `json:"hex"`
	Chunk int    `json:"chunk"`
	Pause int    `json:"pause"`
	Close bool   `json:"close"`
	Exit  *int   `json:"exit"`
}

func main() {
	in := bufio.NewReader(os.Stdin)
	var heard []string
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		var r request
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			fmt.Fprintln(os.Stderr, "puppet:", err)
			os.Exit(1)
		}
		switch {
		case r.Method == "":
			heard = append(heard, strings.TrimSuffix(line, "\n"))
		case r.ID != nil:
			handle(r, heard)
		}
	}
}

func handle(r request, heard []string) {
	switch {
	case r.Method == "initialize":
		answer(r, `{"protocolVersion":`+quote(r.Params.Version)+`,"capabilities":{"tools":{}},"serverInfo":{"name":"puppet","version":"1"}}`)
	case r.Method == "tools/list":
		answer(r, `{"tools":[{"name":"say","inputSchema":{"type":"object"}},{"name":"heard","inputSchema":{"type":"object"}}]}`)
	case r.Params.Name == "say":
		perform(r)
	case r.Params.Name == "heard":
		lines, _ := json.Marshal(heard)
		answerText(r, string(lines))
	default:
		answerText(r, string(r.Params.Arguments))
	}
}

func perform(r request) {
	var s script
	if err := json.Unmarshal(r.Params.Arguments, &s); err != nil {
		answerText(r, err.Error())
		return
	}
	tail, err := hex.DecodeString(s.Hex)
	if err != nil {
		answerText(r, err.Error())
		return
	}
	bytes := strings.ReplaceAll(s.Write, "%ID", string(r.ID)) + string(tail)
	for len(bytes) > 0 {
		n := len(bytes)
		if s.Chunk > 0 {
			n = min(s.Chunk, n)
		}
		io.WriteString(os.Stdout, bytes[:n])
		bytes = bytes[n:]
		time.Sleep(time.Duration(s.Pause) * time.Millisecond)
	}
	if s.Close {
		os.Stdout.Close()
	}
	if s.Exit != nil {
		os.Exit(*s.Exit)
	}
}

func answer(r request, result string) {
	fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", r.ID, result)
}

func answerText(r request, text string) {
	answer(r, `{"content":[{"type":"text","text":`+quote(text)+`}]}`)
}

func quote(s string) string {
	quoted, _ := json.Marshal(s)
	return string(quoted)
}
