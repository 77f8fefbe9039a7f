"""What a note may rest on: honest ones get through however they are put, baseless ones do not."""

from __future__ import annotations

import pytest

from genericagent import memory
from genericagent.memory.evidence import Evidence
from genericagent.safety.keylike import key_in

EN = {memory.L1: "# Red lines\n", memory.L2: "## [ENVIRONMENT]\n\n## [USER]\n", "plan_sop.md": "# Plan\n"}

# (what the user said, or (script, its output), the note)
HONEST: list[tuple[str | tuple[str, str], str]] = [
    # the user's own words, told of somebody else
    ("I live in Berlin", "- The user lives in Berlin."),
    ("I'm living in Berlin these days", "- user: lives in Berlin"),
    ("call me Jo", "- Name: Jo"),
    ("hi, I'm Bo and my sister is Li", "- user is called Bo, the user's sister Li"),
    ("please always use metric units", "- The user prefers metric units."),
    ("I am allergic to peanuts", "- User has a peanut allergy"),
    ("don't call me before 9", "- The user does not want to be called before 9:00."),
    ("my birthday is on May 3rd, 1990", "- birthday: 1990-05-03"),
    ("the contract ends 2025-12-31", "- contract ends on December 31, 2025"),
    ("backups start at 8 pm", "- backups start at 20:00"),
    ("standup is at 14:30", "- standup: 2:30 pm"),
    ("the budget is 20k", "- budget: 20,000"),
    ("I have two kids", "- user has 2 kids"),
    ("we use pnpm here, not npm", "- package manager: pnpm, not npm"),
    ("my printer is at 10.0.0.7, remember that", "- printer: 10.0.0.7"),
    ("Never commit to main, always open a pull request", "- never commit to main; open pull requests"),
    ("My editor is Vim and I can't stand tabs", "- editor: Vim, no tabs"),
    ("can you remember that my boss is called Alice?", "- The user's boss: Alice"),
    ("deploys go out on Mondays only", "- deploy only on Monday"),
    ("the shop's data lies in ~/shop/data", "- shop data: ~/shop/data"),
    # Chinese
    ("我叫小明", "- 用户名叫小明"),
    ("我住在柏林", "- 用户居住地：柏林"),
    ("以后回答都用中文", "- 用户希望用中文回答"),
    ("我的生日是五月三号", "- 用户生日：5月3日"),
    ("服务器每天凌晨两点备份", "- 服务器备份时间：每天凌晨 2:00"),
    ("我对花生过敏", "- 用户花生过敏"),
    ("打印机在三楼，地址是 10.0.0.7", "- 打印机：3楼，10.0.0.7"),
    ("这个项目的预算是两万", "- 项目预算：20000"),
    ("我们项目用 pnpm，不用 npm", "- 项目的包管理器：pnpm（不用 npm）"),
    ("请记住：提交前一定要跑 make check", "- 提交前必须跑 make check"),
    # what a call has shown
    (("python3 --version", "Python 3.11.4"), "- Python on this machine is 3.11"),
    (("hostname -I", "10.0.0.7"), "- this machine's LAN address: 10.0.0.7"),
    (("cat config.toml", "[server]\nport = 8443\nhost = 'staging.example.org'"), "- staging server: staging.example.org, port 8443"),
    (("ls -l /srv/app", "-rw-r--r-- 1 root root 120 May 3 app.toml"), "- the app's configuration is /srv/app/app.toml"),
    (("curl -s http://10.0.0.7:631/ > /dev/null && echo fine", "fine"), "- printer's page: http://10.0.0.7:631/"),
    (("lsb_release -d", "Description: Ubuntu 22.04.3 LTS"), "- 系统：Ubuntu 22.04"),
    (("grep -n timeout app.py", "12:TIMEOUT = 30"), "- app.py: timeout is 30 s"),
    ("I work as a nurse, mostly nights","- The user is a nurse who works night shifts"),
    ("my wife's name is Ana","- user's wife: Ana"),
    ("my email is jo@example.org","- E-mail: jo@example.org"),
    ("I'm 34 years old","- user's age: 34"),
    ("my phone number is +49 30 1234567","- phone: +49 30 1234567"),
    ("I'd rather you answered in German","- Answer in German"),
    ("the NAS is called tank and mounts at /mnt/tank","- NAS: tank, mounted at /mnt/tank"),
    ("my timezone is UTC+2","- timezone: UTC+2"),
    ("we release every second Thursday","- releases: every second Thursday"),
    ("use port 9090 for staging","- staging uses port 9090"),
    ("I hate long answers. Be brief.","- wants brief answers"),
    ("our team uses Jira for tickets and Slack to talk","- tickets are in Jira; team talks on Slack"),
    ("take the bus at 7:15 in the morning, that is my commute","- morning commute: bus at 7:15"),
    ("I've got a Raspberry Pi 4 in the cellar that runs Home Assistant","- Home Assistant runs on a Raspberry Pi 4 in the cellar"),
    ("report goes to Maria every Friday at five","- weekly report to Maria, Friday 5 pm"),
    ("我妻子叫安娜","- 用户的妻子：安娜"),
    ("不要删除照片文件夹里的东西","- 绝不删除照片文件夹中的内容"),
    ("测试服务器的端口是 9090","- 测试服务器端口：9090"),
    ("每周五下午五点给玛丽亚发报告","- 每周五 17:00 向玛丽亚发送报告"),
    ("我在上海的一家银行上班","- 用户在上海一家银行工作"),
    ("代码注释请用英文写","- 代码注释：英文"),
    ("我的猫叫咪咪，今年三岁","- 用户的猫：咪咪，3岁"),
    (("df -h /data","Filesystem Size Used Avail Use% Mounted on\n/dev/sdb1 1.8T 900G 800G 53% /data"),"- /data is on /dev/sdb1, 1.8T"),
    (("git -C /srv/shop remote -v","origin git@git.example.org:shop.git (fetch)"),"- shop repository: git@git.example.org:shop.git"),
    (("node --version && npm --version","v20.11.1\n10.2.4"),"- node 20, npm 10.2.4"),
    (("systemctl status nginx | head -3","● nginx.service - A high performance web server\n   Loaded: loaded (/lib/systemd/system/nginx.service; enabled)\n   Active: active (running)"),"- nginx is enabled as a systemd service"),
    (("make test","42 passed in 3.1s"),"- tests run with `make test`"),
    (("cat README.md","# Shop\nTo deploy run bin/deploy.sh staging. Needs VPN."),"- deploy: bin/deploy.sh staging, needs VPN"),
    (("cat 说明.txt","部署前先连接公司网络，然后运行 bin/deploy.sh"),"- 部署：先连公司网络，再运行 bin/deploy.sh"),
    ("the wifi is called FRITZ!Box 7590 QX", "- Wi-Fi name: FRITZ!Box 7590 QX"),
    ("my Wi-Fi is called Attic", "- wifi: Attic"),
    ("I get up at half past six", "- wakes at 6:30"),
    ("we have twenty-one machines", "- 21 machines"),
    ("the rent is 1.250,50 €", "- rent: 1250.50 EUR"),
    ("我每天早上八点半上班", "- 上班时间：8:30"),
    ("预算一百五十万", "- 预算：150万"),
    ("let me know if you need the NAS, it is at 10.0.0.7", "- NAS: 10.0.0.7"),
    ("can you check whether nginx runs, the pi is at 10.0.0.7", "- pi: 10.0.0.7"),
    ("before each deploy check whether the VPN is up", "- before a deploy check whether the VPN is up"),
    (("grep -n timeout app.py || true", "12:TIMEOUT = 30"), "- app.py: timeout is 30 s"),
    (("for h in a b; do echo host $h; done; hostname -I", "host a\nhost b\n10.0.0.7"), "- LAN address: 10.0.0.7"),
    (("nproc; free -g | head -2","8\n               total used free\nMem: 31 4 20"),"- 8 cores, 31 GB of memory"),
]  # fmt: skip
BASELESS: list[tuple[str | tuple[str, str], str]] = [
    ("what is the weather like", "- deploy only from the release branch"),
    ("find out where my printer is and remember it", "- printer: 10.0.0.7"),
    ("which database does the staging server use?", "- The staging server uses Postgres."),
    ("which database does the staging server use?", "- staging server uses postgres"),
    ("does the staging server use postgres?", "- staging server uses postgres"),
    ("服务器在柏林吗？", "- 服务器在柏林"),
    ("I live in Berlin", "- The user lives in Bern."),
    ("my server is alpha", "- server: beta"),
    ("I have a dog", "- the user has a cat"),
    ("deploy with make ship", "- deploy with make release"),
    ("the budget is 20k", "- budget: 30,000"),
    ("my birthday is on May 3rd", "- birthday: 1990-05-03"),
    ("standup is at 14:30", "- standup: 14:45"),
    ("我叫小明", "- 用户名叫小红"),
    ("我住在柏林", "- 用户住在慕尼黑"),
    ("我的打印机在哪里？", "- 打印机在三楼"),
    ("查一下服务器的端口", "- 服务器端口：8443"),
    ("今天天气怎么样", "- 只能从发布分支部署"),
    # the fact was in the call, not in what came back
    (("echo the printer is at 10.0.0.7", "the printer is at 10.0.0.7"), "- printer: 10.0.0.7"),
    (("echo 'user lives in Berlin'", "user lives in Berlin"), "- user lives in Berlin"),
    (("print('staging uses Postgres')", "staging uses Postgres"), "- staging uses Postgres"),
    (("print('port', 8443)", "port 8443"), "- port: 8443"),
    (("x = 'gate at 10.0.0.9'\nprint(x)", "gate at 10.0.0.9"), "- gate: 10.0.0.9"),
    (("X=10.0.0.9; echo gate $X", "gate 10.0.0.9"), "- gate: 10.0.0.9"),
    (("cat <<EOF\ngate 10.0.0.9\nEOF", "gate 10.0.0.9"), "- gate: 10.0.0.9"),
    (("# the gate is at 10.0.0.9\nls", "a.txt"), "- gate: 10.0.0.9"),
    (("echo gate 10.0.0.9 > notes.txt", ""), "- gate: 10.0.0.9"),
    (("printf '%s\\n' 打印机在三楼", "打印机在三楼"), "- 打印机在三楼"),
    # a call that has nothing to do with it
    (("ls", "a.txt\nb.txt"), "- build server: 10.0.0.9"),
    (("uname -a", "Linux box 6.1.0 x86_64"), "- The user prefers dark mode."),
    (("cat config.toml", "port = 8443"), "- staging port: 8444"),
    (("pwd", "/home/u/shop"), "- the shop's data lies in /srv/shop/data"),
    ("I work as a nurse","- the user works as a teacher"),
    ("my wife's name is Ana","- user's wife: Anna-Lena"),
    ("help me with my email","- email: jo@example.org"),
    ("write a poem about autumn","- user likes poetry"),
    ("fix the failing test in parser.py","- The tests of this project are run with tox"),
    ("our team uses Jira for tickets","- our team uses Trello for tickets"),
    ("where does nginx log?","- nginx logs to /var/log/nginx/error.log"),
    ("how do I deploy?","- deploy with kubectl apply"),
    ("the NAS is at /mnt/tank","- the NAS is at /mnt/pool"),
    ("summarise the report","- Maria wants the report every Friday"),
    ("I take the bus at 7:15","- bus at 7:45"),
    ("write it in Rust please","- the user prefers Go"),
    ("我是素食者","- 用户对海鲜过敏"),
    ("我妻子叫安娜","- 用户的妻子：丽莎"),
    ("帮我写一首诗","- 用户是一名教师"),
    ("怎么部署？","- 用 kubectl 部署到生产集群"),
    ("测试服务器的端口是 9090","- 测试服务器端口：9091"),
    (("ls /etc","hosts\npasswd"),"- DNS server: 1.1.1.1"),
    (("echo 'node 20 is installed'; date","node 20 is installed\nMon May 3 10:00"),"- node 20 is installed"),
    (("console.log('redis on 6379')","redis on 6379"),"- redis: port 6379"),
    (("python3 - <<'X'\nprint('db on 5433')\nX","db on 5433"),"- db: port 5433"),
    (("d = {'db': 5433}\nprint(d['db'])","5433"),"- db port: 5433"),
    (("true","") ,"- CI runs on GitHub Actions"),
    (("git status","On branch main\nnothing to commit"),"- The default branch is master."),
    (("make test","42 passed in 3.1s"),"- tests are run with tox, 30 of them"),
    ("tell me what port Redis uses, please", "- Redis uses port"),
    ("can you check whether nginx runs on the pi", "- nginx runs on the pi"),
    ("please find out if the NAS is at 10.0.0.7", "- NAS: 10.0.0.7"),
    ("I wonder whether staging uses Postgres", "- staging uses Postgres"),
    ("should I use Postgres or MySQL", "- use Postgres"),
    ("看看服务器是不是在柏林", "- 服务器在柏林"),
    ("不知道端口是不是 9090", "- 端口：9090"),
    (("ls /opt/app || true", "ls: cannot access '/opt/app': No such file or directory"), "- the app is in /opt/app"),
    (("which redis-server || echo missing", "missing"), "- redis-server is installed"),
    (("nc -zv 10.0.0.9 22; true", "connect to 10.0.0.9 port 22 failed"), "- 10.0.0.9 accepts ssh on port 22"),
    (("ls gate-10.0.0.9 2>/dev/null; true", ""), "- gate: 10.0.0.9"),
    (("cat > a.txt <<< 'gate 10.0.0.9'; cat a.txt", "gate 10.0.0.9"), "- gate: 10.0.0.9"),
    (("cat > a.txt <<E\ngate 10.0.0.9\nE\ncat a.txt", "gate 10.0.0.9"), "- gate: 10.0.0.9"),
    (("yes 'gate 10.0.0.9' | head -1", "gate 10.0.0.9"), "- gate: 10.0.0.9"),
    (("G=10.0.0.9\nexport G; env | grep ^G=", "G=10.0.0.9"), "- gate: 10.0.0.9"),
    (("echo 数据库端口5433","数据库端口5433"),"- 数据库端口：5433"),
]  # fmt: skip


def rests_on(world: str | tuple[str, str], note: str, name: str = memory.L2) -> list[str]:
    """What the note rests on, and "doubt" where the opposite was said."""
    evidence = Evidence()
    if isinstance(world, str):
        evidence.user_said(world)
    else:
        evidence.saw("code_run", 1, world[0], '{"status": "success", "exit_code": 0}\n' + world[1])
    ground, lacks = evidence.of(name, note.split("\n"), [], EN)
    assert bool(ground) is not bool(lacks)
    return [str(key) for one in ground for key in one]


@pytest.mark.parametrize(("world", "note"), HONEST)
def test_an_honest_note_is_stored_however_it_is_put(world: str | tuple[str, str], note: str) -> None:
    found = rests_on(world, note)
    assert ("told" if isinstance(world, str) else "tool") in found and "doubt" not in found


@pytest.mark.parametrize(("world", "note"), BASELESS)
def test_a_baseless_note_is_not(world: str | tuple[str, str], note: str) -> None:
    assert rests_on(world, note) == []


@pytest.mark.parametrize(
    ("said", "note", "doubted"),
    [
        ("do not use port 8080", "- use port 8080", True), ("use port 8080", "- never use port 8080", True),
        ("不要使用端口 8080", "- 使用端口 8080", True), ("don't use port 8080, use 9090", "- use port 9090", False),
        ("do not use port 8080", "- port 8080 is not to be used", False), ("别用 npm，用 pnpm", "- 用 pnpm，不用 npm", False),
    ],
)  # fmt: skip
def test_a_note_that_says_the_opposite_is_doubted(said: str, note: str, doubted: bool) -> None:
    assert ("doubt" in rests_on(said, note)) is doubted


def test_an_unshown_word_is_named_and_one_line_cannot_hide_behind_another() -> None:
    evidence = Evidence()
    evidence.user_said("the printer stands in the hall next to the window")
    ground, lacks = evidence.of(memory.L2, ["- printer: hall, window", "- gate: 10.0.0.7"], [], EN)
    assert ground == [] and lacks == ["10.0.0.7"]


def test_a_procedure_may_put_half_of_it_in_its_own_words_and_a_helper_rests_on_a_script_that_ran() -> None:
    procedure = ["# Release", "1. bash: `make ship`", "Pitfall: without the VPN the upload hangs, so connect it first."]
    helper = ["def ship(target):", "    return upload(target, retries=7, pause=9)"]
    for script, stored in (("make ship", True), ("echo make ship, VPN, upload", False)):
        evidence = Evidence()
        evidence.user_said("release it, the VPN is needed for an upload")
        evidence.saw("code_run", 1, script, "done, 3 files" if stored else "make ship, VPN, upload")
        assert bool(evidence.of("ship_helper.py", helper, [], EN)[0]) is stored
        assert bool(evidence.of("release_sop.md", procedure, [], EN)[0]) is stored
        assert not evidence.of("other_sop.md", ["Order the parts by Thursday, call Maria for 40 screws."], [], EN)[0]
        evidence.begin()
        assert not evidence.of("ship_helper.py", helper, [], EN)[0], "that was another task"


def test_the_index_may_name_what_is_there_and_lines_may_be_put_shorter() -> None:
    memory_now = {
        **EN,
        memory.L2: "## [SHOP]\n- till: exports lie in var/till\n- till: control totals lie in var/sums\n",
    }
    none = Evidence()
    assert none.of(memory.L1, ["the till's exports and totals: global_mem.txt [SHOP]"], [], memory_now)[0]
    assert not none.of(memory.L1, ["the till's password: 4711"], [], memory_now)[0]
    old = memory_now[memory.L2].split("\n")[1:3]
    assert none.of(memory.L2, ["- till: exports in var/till, totals in var/sums"], old, memory_now)[0]
    assert not none.of(memory.L2, ["- till"], old, memory_now)[0], "what is verified is not dropped"


HOSTILE = {  # each took minutes, or raised, in some pattern
    "heredocs": "<<a" * 300 + "\n" * 6000, "beginnings": "<<a\n" * 70_000, "print": "print" + " " * 300_000, "digits": "1" * 300_000,
    "a huge number": "1" * 400 + "k", "parts": "1." * 150_000, "questions": "什么" * 150_000, "colons": "key: " + ":" * 300_000 + "x",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", HOSTILE)
def test_long_hostile_text_holds_up_no_note_and_hides_no_key(kind: str) -> None:
    text = HOSTILE[kind]
    evidence = Evidence()
    evidence.user_said(f"{text}\nthe printer is in the hall.\n")
    evidence.saw("code_run", 1, text, f"the gate is at 10.0.0.7\n{text}")
    assert evidence.of(memory.L2, ["- gate: 10.0.0.7", "- printer: hall"], [], EN)[0]
    assert not evidence.of(memory.L2, [f"- door: 10.0.0.8 {text}"], [], EN)[0]
    assert key_in(f"{text}\npassword: Kestrel7") == "password…"


def test_what_stands_behind_a_heredoc_or_a_shift_was_done() -> None:
    for script, kept in (
        ("cat <<A > x\ngate\nA\ncat <<A >> x\ngate\nA\nls /srv/app", "/srv/app"),
        ("n = 1 << b\nls('/srv/app')", "/srv/app"),
    ):
        evidence = Evidence()
        evidence.saw("code_run", 1, script, "")
        assert kept in evidence.calls[0].done and "gate" not in evidence.calls[0].done


@pytest.mark.parametrize("how", ["a file", "a heredoc", "an echo", "a script's file"])
def test_what_a_task_wrote_itself_is_no_evidence_when_it_is_read_again(how: str) -> None:
    evidence = Evidence()
    if how == "a file":
        evidence.wrote("first\ngate: 10.0.0.9\n")
    else:
        evidence.saw("code_run", 1, {
            "a heredoc": "cat > a.txt <<E\nthe gate is at 10.0.0.9\nE", "an echo": "echo gate 10.0.0.9 > a.txt",
            "a script's file": "open('a.txt', 'w').write('gate 10.0.0.9')",
        }[how], "")  # fmt: skip
    evidence.saw("file_read", 2, "a.txt", "1|first\n2|gate: 10.0.0.9\n3|lock: 10.0.0.8")
    evidence.saw("code_run", 2, "cat a.txt", "gate: 10.0.0.9")
    assert not evidence.of(memory.L2, ["- gate: 10.0.0.9"], [], EN)[0]
    assert evidence.of(memory.L2, ["- lock: 10.0.0.8"], [], EN)[0], "that line is somebody else's"
    evidence.saw("code_run", 3, "dig gate", "gate. 3600 IN A 10.0.0.9")
    evidence.wrote("gate. 3600 IN A 10.0.0.9")
    assert evidence.of(memory.L2, ["- gate: 10.0.0.9"], [], EN)[0], "it was seen first"
