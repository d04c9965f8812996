"""Translations: common tool words in the other languages of searches.

Most tools are described in English, but requests come in any language. These words help if no word of a request is
known; an embedder knows many more. A line has an English tool word, then its German, French, Spanish, Italian,
Portuguese, Russian and Chinese translations.
"""

from __future__ import annotations

from collections.abc import Iterator

from pegboard.discovery.search.terms import stem, stems

_LANGUAGES = ("german", "french", "spanish", "italian", "portuguese", "russian")

# Deliberately small: each line must be true in any catalog.
_SAME: tuple[str, ...] = (
    "read lesen lies liest lire leer lee leggere leggi ler leia читать прочитать прочитай 读取 阅读",
    "write schreiben schreib écrire escribir escribe scrivere scrivi escrever escreva писать написать запиши 写入 编写",
    "file datei dateien fichier fichiers archivo archivos fichero file arquivo arquivos ficheiro файл файлы 文件",
    "folder ordner verzeichnis dossier répertoire carpeta directorio cartella pasta папка каталог 目录",
    "search suchen suche such chercher cherche rechercher recherche buscar busca cercare cerca procurar искать"
    " найди поиск 搜索 查找",
    "find finden finde trouver trouve encontrar encuentra trovare trova achar найти найди 查找",
    "show zeigen zeig zeige anzeigen afficher montrer montre mostrar muestra mostrare mostra показать покажи 显示",
    "list auflisten liste lister listar lista elencare elenca список перечислить 列出 列表",
    "create erstellen erstelle anlegen créer crée crear crea creare criar crie создать создай 创建 新建",
    "add hinzufügen ajouter ajoute añadir agregar añade aggiungere aggiungi adicionar добавить добавь 添加",
    "delete löschen lösche entfernen supprimer supprime effacer borrar eliminar borra elimina eliminare"
    " cancellare apagar excluir удалить удали 删除",
    "update aktualisieren ändern ändere modifier actualizar modificar modifica aggiornare modificare atualizar"
    " обновить изменить 更新 修改",
    "send senden sende schicken schick envoyer envoie enviar envía inviare invia mandare envie отправить"
    " отправь послать 发送",
    "message nachricht nachrichten message mensaje mensajes messaggio messaggi mensagem сообщение сообщения 消息 短信",
    "email mail courriel correo posta почта письмо 邮件 邮箱",
    "open öffnen öffne ouvrir ouvre abrir abre aprire apri открыть открой 打开",
    "close schließen schließe fermer ferme cerrar cierra chiudere chiudi fechar закрыть закрой 关闭",
    "copy kopieren kopiere copier copie copiar copia copiare скопировать копировать 复制",
    "move verschieben déplacer mover mueve spostare sposta переместить 移动",
    "download herunterladen télécharger descargar descarga scaricare scarica baixar скачать 下载",
    "upload hochladen téléverser subir caricare carica carregar загрузить 上传",
    "run ausführen starten exécuter lancer ejecutar ejecuta eseguire esegui executar запустить выполнить 运行 执行",
    "calculate rechnen berechnen berechne calculer calcule calcular calcula calcolare calcola вычислить"
    " посчитать рассчитать 计算",
    "translate übersetzen übersetze traduire traduis traducir traduce tradurre traduci traduzir перевести 翻译",
    "time zeit uhrzeit heure hora horas ora tempo время 时间",
    "date datum date fecha data дата 日期",
    "today heute aujourd'hui hoy oggi hoje сегодня 今天",
    "tomorrow morgen demain mañana domani amanhã завтра 明天",
    "weather wetter météo clima tempo meteo погода 天气",
    "calendar kalender calendrier calendario calendário календарь 日历",
    "event termin termine veranstaltung événement evento eventos событие 活动 事件",
    "task aufgabe aufgaben tâche tâches tarea tareas compito attività tarefa задача задачи 任务",
    "note notiz notizen note nota notas appunto appunti заметка заметки 笔记 备注",
    "reminder erinnerung rappel recordatorio promemoria lembrete напоминание 提醒",
    "document dokument dokumente document documento documentos documenti документ документы 文档",
    "table tabelle tableau tabla tabella tabela таблица 表格",
    "database datenbank datos database banco база 数据库 数据",
    "picture bild bilder image images imagen imágenes foto immagine imagem картинка изображение фото 图片 图像",
    "video film vidéo vídeo видео 视频",
    "music musik musique música musica музыка 音乐",
    "song lied chanson canción canzone música песня 歌曲",
    "price preis preise prix precio precios prezzo prezzi preço цена 价格",
    "stock aktie aktien action acciones acción azione azioni ação акция акции 股票",
    "money geld argent dinero denaro soldi dinheiro деньги",
    "currency währung devise moneda divisa valuta moeda валюта 货币 汇率",
    "pay bezahlen zahlen payer pagar paga pagare оплатить 支付",
    "order bestellung bestellen commande commander pedido ordine ordinare encomenda заказ 订单",
    "customer kunde kunden client cliente clientes clienti клиент 客户",
    "user benutzer nutzer utilisateur usuario usuarios utente utenti usuário пользователь 用户",
    "name namen nom nombre nome имя название 名称 姓名",
    "address adresse dirección indirizzo endereço адрес 地址",
    "city stadt ville ciudad città cidade город 城市",
    "country land pays país paese страна 国家",
    "map karte carte mapa mappa карта 地图",
    "route weg strecke itinéraire ruta percorso rota маршрут 路线",
    "flight flug flüge vol vuelo vuelos volo voli voo рейс перелёт 航班",
    "train zug züge train tren treno trem поезд 火车",
    "hotel hôtel hotel albergo отель гостиница 酒店",
    "restaurant restaurante ristorante ресторан 餐厅",
    "recipe rezept rezepte recette receta ricetta receita рецепт 食谱",
    "news nachrichten actualités nouvelles noticias notizie notícias новости 新闻",
    "book buch bücher livre livres libro libros libri livro книга 书籍 图书",
    "web internet netz internet red rete интернет 网络 网页",
    "website webseite site sitio sito сайт 网站",
    "request anfrage requête solicitud petición richiesta requisição запрос 请求",
    "question frage fragen question pregunta domanda pergunta вопрос 问题",
    "answer antwort réponse respuesta risposta resposta ответ 回答",
    "summary zusammenfassung zusammenfassen résumé résumer resumen resumir riassunto riassumere resumo 总结 摘要",
    "number zahl nummer nombre numéro número numero число номер 数字 号码",
    "error fehler erreur error errore erro ошибка 错误",
    "test prüfen testen tester probar prueba provare testar проверить 测试",
    "project projekt projekte projet proyecto progetto projeto проект 项目",
    "code quelltext code código codice код 代码",
    "password passwort kennwort contraseña senha пароль 密码",
    "team mannschaft équipe equipo squadra time команда 团队 球队",
    "game spiel spiele jeu juego gioco jogo игра 游戏",
    "job stelle arbeit emploi trabajo empleo lavoro emprego работа вакансия 工作 职位",
    "language sprache langue idioma lingua язык 语言",
    "random zufällig zufall aléatoire hasard aleatorio azar casuale случайный случайное 随机",
    "text text texte texto testo текст 文本",
    "page seite seiten page página pagina страница 页面",
)


def _table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for line in _SAME:
        english, *others = line.split()
        for word in others:
            for form in _forms(word):
                table.setdefault(form, {})[stem(english)] = None
    return {form: tuple(terms) for form, terms in table.items()}


def _forms(word: str) -> Iterator[str]:
    yield word
    yield from stems(word, _LANGUAGES)


_TABLE: dict[str, tuple[str, ...]] = _table()


def english_of(part: str) -> tuple[str, ...]:
    """Return the English tool words that translate a lower-case part of a request."""
    return tuple(dict.fromkeys(term for form in _forms(part) for term in _TABLE.get(form, ())))
