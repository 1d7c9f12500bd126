package fakemps

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// Main runs the program that argv[0] names, if it is one of the fakes.
func Main() (code int, ours bool) {
	dir := filepath.Dir(os.Args[0])
	var err error
	switch filepath.Base(os.Args[0]) {
	case controlName:
		if len(os.Args) > 1 && os.Args[1] == "-f" {
			err = serve(dir)
		} else {
			err = client(os.Stdin, os.Stdout)
		}
	case serverName:
		untilEnded()
	case smiName:
		err = smi(dir, os.Args[1:])
	default:
		return 0, false
	}
	if err != nil {
		fmt.Println(err)
		return 1, true
	}
	return 0, true
}

// client is the control program without an option: commands from stdin, one
// connection for each, answers to stdout.
func client(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		conn, err := net.Dial("unix", socket())
		if err != nil {
			return errors.New("Cannot find MPS control daemon process") //nolint:staticcheck // NVIDIA's words
		}
		if _, err := fmt.Fprintln(conn, lines.Text()); err != nil {
			return err
		}
		if _, err := io.Copy(out, conn); err != nil {
			return err
		}
		if err := conn.Close(); err != nil {
			return err
		}
	}
	return lines.Err()
}

func socket() string { return filepath.Join(os.Getenv("CUDA_MPS_PIPE_DIRECTORY"), "control") }

func smi(dir string, args []string) error {
	uuid, mode := args[1], args[3]
	if set(dir, smiFails, uuid) {
		return fmt.Errorf("Unable to determine the device handle for GPU %s: GPU is lost", uuid) //nolint:staticcheck // NVIDIA's words
	}
	return record(dir, Call{Program: smiName, Args: []string{uuid, mode}})
}

func untilEnded() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
}

// daemon is the control program with -f.
type daemon struct {
	dir, cards string
	server     *exec.Cmd
	listener   net.Listener

	mu      sync.Mutex
	percent string
}

// serve starts a server at once, where the real one starts it for the first
// client.
func serve(dir string) error {
	d := &daemon{dir: dir, cards: os.Getenv("CUDA_VISIBLE_DEVICES"), percent: "100.0"}
	var shm syscall.Stat_t
	if err := syscall.Stat("/dev/shm", &shm); err != nil {
		return err
	}
	call := Call{Program: controlName, PID: os.Getpid(), Env: map[string]string{}, ShmInode: shm.Ino}
	for _, key := range []string{"CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY", "CUDA_VISIBLE_DEVICES"} {
		call.Env[key] = os.Getenv(key)
	}
	if err := record(dir, call); err != nil {
		return err
	}
	if set(dir, refuses, d.cards) {
		return errors.New("An instance of this daemon is already running") //nolint:staticcheck // NVIDIA's words
	}
	if err := os.Remove(socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var err error
	if d.listener, err = net.Listen("unix", socket()); err != nil {
		return err
	}
	server, err := exec.LookPath(serverName)
	if err != nil {
		return err
	}
	d.server = exec.Command(server)
	if err := d.server.Start(); err != nil {
		return err
	}
	if err := record(dir, Call{Program: serverName, PID: d.server.Process.Pid}); err != nil {
		return err
	}
	for {
		conn, err := d.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return d.stopServer()
		}
		if err != nil {
			return err
		}
		go d.answer(conn)
	}
}

func (d *daemon) stopServer() error {
	if err := d.server.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.server.Wait()
}

// answer serves one connection; a daemon that hangs keeps it open for ever.
func (d *daemon) answer(conn net.Conn) {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || set(d.dir, hangs, d.cards) {
		return
	}
	fmt.Printf("[2026-12-01 13:46:59.979 Control %5d] Cmd:%s", os.Getpid(), line)
	words := strings.Fields(line)
	if err := record(d.dir, Call{Program: "command", PID: os.Getpid(), Args: words}); err != nil {
		fmt.Fprintln(conn, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if words[0] == "quit" {
		// Who said so hears of it by the end of the daemon.
		if !set(d.dir, hasClients, d.cards) {
			d.listener.Close()
		}
		return
	}
	defer conn.Close()
	switch words[0] {
	case "get_default_active_thread_percentage":
		fmt.Fprintln(conn, d.percent)
	case "set_default_active_thread_percentage":
		d.percent = words[1] + ".0"
		fmt.Fprintln(conn, d.percent)
	case "get_server_list":
		if set(d.dir, hasClients, d.cards) {
			fmt.Fprintln(conn, d.server.Process.Pid)
		}
	}
}

// The behaviours that a test sets, each for the daemon, or nvidia-smi, of some
// cards.
const (
	refuses    = "refuses"
	hangs      = "hangs"
	hasClients = "has-clients"
	smiFails   = "smi-fails"
)

func behaviour(dir, what, cards string) string { return filepath.Join(dir, what+" "+cards) }

func set(dir, what, cards string) bool {
	_, err := os.Stat(behaviour(dir, what, cards))
	return !errors.Is(err, fs.ErrNotExist)
}

// record appends one line in one write, so that calls do not mix.
func record(dir string, c Call) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, callsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
